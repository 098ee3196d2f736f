"""Attributes and filters as hypothesis draws them: few keys and values, so that they meet."""

from hypothesis import strategies as st

from retrieval.api import AllOf, AnyOf, Attribute, Comparator, Comparison, Filter

KEYS = ("a", "ab", "A", "größe", "it's", 'x".y[0]', "")
STRINGS = (
    "",
    "1",
    "true",
    "a",
    "ab",
    "b",
    "B",
    "ü",
    "東",
    "\U0001f40d",
    'it\'s "so" \\ % _',
    "=",
    ">",
)
NUMBERS = (0.0, -0.0, 1.0, 1, -1, 2, 0.1, -0.1, 1e300, -1e300, 5e-324, 2**53, 2**53 - 1, -7.25)

_ORDERS = (Comparator.GT, Comparator.GTE, Comparator.LT, Comparator.LTE)


def attributes() -> st.SearchStrategy[Attribute]:
    return st.one_of(
        st.sampled_from(STRINGS),
        st.sampled_from(NUMBERS),
        st.booleans(),
        st.floats(allow_nan=False, allow_infinity=False),
    )


def attribute_maps() -> st.SearchStrategy[dict[str, Attribute]]:
    return st.dictionaries(st.sampled_from(KEYS), attributes(), max_size=5)


def comparisons() -> st.SearchStrategy[Filter]:
    keys = st.sampled_from(KEYS)
    ordered = st.one_of(st.sampled_from(STRINGS), st.sampled_from(NUMBERS))
    many = st.lists(attributes(), max_size=4).map(tuple)
    return st.one_of(
        st.builds(Comparison, keys, st.sampled_from((Comparator.EQ, Comparator.NE)), attributes()),
        st.builds(Comparison, keys, st.sampled_from(_ORDERS), ordered),
        st.builds(Comparison, keys, st.sampled_from((Comparator.IN, Comparator.NIN)), many),
    )


def filters() -> st.SearchStrategy[Filter]:
    def grown(inner: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
        several = st.lists(inner, max_size=3).map(tuple)
        return st.one_of(several.map(AllOf), several.map(AnyOf))

    return st.recursive(comparisons(), grown, max_leaves=6)
