"""Texts that a byte encoder is measured on, and others that it is proved on; nothing else."""

MEASURED = (
    "The tenant shall pay the rent of $1,418.25 on the first business day of every month. If the"
    " payment is late by more than five days, a fee of 4.5 % is due; see Section 12(b) below.",
    "Q. Did you see the defendant on the evening of March 3, 2019? A. I did, yes. He came in at"
    " about half past nine, ordered a coffee, and left before the train to Albany was called.",
    "def load(path: Path) -> dict[str, int]:\n    with path.open() as file:\n        return"
    " {key: int(value) for key, _, value in (line.partition('=') for line in file)}\n",
    "| Quarter | Revenue | Costs | Margin |\n|---|---|---|---|\n| Q1 | 10,442 | 8,120 | 22.2 % |\n"
    "| Q2 | 11,035 | 8,377 | 24.1 % |\n| Q3 | 9,871 | 8,004 | 18.9 % |",
    "an experimental study of a wing in a propeller slipstream was made in order to determine the"
    " spanwise distribution of the lift increase due to slipstream at different angles of attack",
    "From: m.ortiz@example.com\nTo: billing@example.com\nSubject: Re: invoice 2231-7\n\nHi Anna,"
    " thanks -- could you resend the PDF? The link in your last mail has expired. Best, Maria",
    "Die Bundesregierung hat am Mittwoch \u00fcber den Entwurf beraten; \u041f\u0440\u0430"
    "\u0432\u0438\u0442\u0435\u043b\u044c\u0441\u0442\u0432\u043e \u0440\u0435\u0448\u0438"
    "\u043b\u043e. \u4e2d\u56fd\u7684\u7ecf\u6d4e\u5728\u589e\u957f\u3002 L'\u00e9t\u00e9 fut"
    " br\u00e8ve.",
    "2024-05-06T07:08:09Z ERROR worker[1184]: lease lost job=7f3a attempts=3 retry_in=4.2s\n"
    "Traceback (most recent call last): ... ConnectionResetError: [Errno 104] reset by peer",
    "what causes the northern lights",
)

PROVED = (
    "Bees carry pollen from one flower to another while they gather nectar, and most orchards"
    " depend on them: without visits in the first week of blossom there will be few apples.",
    "SELECT city, count(*) FROM visits WHERE day >= '2023-01-01' GROUP BY city HAVING count(*) > 9"
    " ORDER BY 2 DESC;\n-- slow: 8.3 s without the index on (day, city)",
    "The committee met on 14 June, heard three witnesses, and adjourned until the report of the"
    " auditors (nos. 17-22) had been printed and laid before both houses.",
    "1. Preheat the oven to 220 C.\n2. Mix 300 g flour, 4 eggs, a pinch of salt.\n3. Bake 25 min.",
    "Who signed the lease?",
)
