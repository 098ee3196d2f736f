"""Which arithmetic an embedding model gets here, and the proof that bytes are good enough for it.

Knows the processor's instructions and what a model is made of.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from transformers import BertModel

from retrieval.config import EmbedderDtype
from retrieval.embedding.calibration import MEASURED, PROVED
from retrieval.embedding.encoder import ByteEncoder, Peaks, layers_of

logger = logging.getLogger(__name__)

LEAST_COSINE = 0.995
"""Of float32 and byte vectors of one text. MiniLM's are .998 or nearer."""

_BYTE_PRODUCTS = ("avx512_vnni", "avx_vnni", "amx_int8")
_BFLOAT16_PRODUCTS = ("avx512_bf16", "amx_bf16")


class BytesRefused(ValueError):
    """The model or the processor is not one for byte products; says why."""


def byte_encoder(model: SentenceTransformer, dtype: EmbedderDtype) -> ByteEncoder | None:
    """The model's encoder in bytes, when it is wanted and good enough.

    Raises BytesRefused when bytes were asked for by name and cannot be had.
    """
    if dtype not in (EmbedderDtype.AUTO, EmbedderDtype.INT8):
        return None
    try:
        bert = _readable(model)
        encoder = ByteEncoder.build(bert, _peaks(model, bert))
        _prove(model, encoder)
    except BytesRefused as error:
        if dtype is EmbedderDtype.INT8:
            raise
        logger.info("embedder not in bytes", extra={"cause": str(error)})
        return None
    return encoder


def float_type(dtype: EmbedderDtype) -> torch.dtype:
    if dtype is EmbedderDtype.FLOAT32:
        return torch.float32
    if dtype is EmbedderDtype.BFLOAT16 or _has_any(_BFLOAT16_PRODUCTS):
        return torch.bfloat16
    return torch.float32


def _readable(model: SentenceTransformer) -> BertModel:
    """The model's encoder, if it is one that `ByteEncoder` can stand for."""
    if not _has_any(_BYTE_PRODUCTS):
        raise BytesRefused("the processor has no instructions for products of bytes (VNNI)")
    if not hasattr(torch.ops.onednn, "qlinear_pointwise"):
        raise BytesRefused("this PyTorch has no products of bytes")
    kinds = [type(module).__name__ for module in model]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise BytesRefused(f"the model is made of {', '.join(kinds)}")
    if model[1].pooling_mode != "mean":
        raise BytesRefused(f"the model pools by {model[1].pooling_mode}, not by the mean")
    bert = model[0].auto_model
    if not isinstance(bert, BertModel):
        raise BytesRefused(f"the encoder is a {type(bert).__name__}, not a BertModel")
    config = bert.config
    places = getattr(config, "position_embedding_type", "absolute")
    if config.hidden_act != "gelu" or places != "absolute" or config.is_decoder:
        raise BytesRefused(f"the encoder has {config.hidden_act} and {places} positions")
    return bert


def _peaks(model: SentenceTransformer, bert: BertModel) -> Peaks:
    peaks: dict[int, Tensor] = {}

    def watch(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        peak_D = inputs[0].abs().flatten(0, -2).amax(0)
        peaks[id(module)] = torch.maximum(peaks.get(id(module), peak_D), peak_D)

    watched = [
        module
        for layer in layers_of(bert)
        for module in (layer.attention.self.query, layer.intermediate.dense)
    ]
    hooks = [module.register_forward_pre_hook(watch) for module in watched]
    try:
        # One at a time: what is padded would be measured too.
        for text in MEASURED:
            _float_vectors(model, [text])
    finally:
        for hook in hooks:
            hook.remove()
    return peaks


def _prove(model: SentenceTransformer, encoder: ByteEncoder) -> None:
    exact = _float_vectors(model, PROVED)
    windows = model.tokenizer(list(PROVED), truncation=True, max_length=model.max_seq_length)
    near = encoder.mean_vectors(windows["input_ids"])
    cosines = (_unit(exact) * _unit(near)).sum(1)
    if not cosines.min() >= LEAST_COSINE:
        raise BytesRefused(f"vectors in bytes are off: a cosine of {cosines.min():.4f} to float32")


def _float_vectors(model: SentenceTransformer, texts: Sequence[str]) -> NDArray[np.float32]:
    vectors: NDArray[np.float32] = model.encode(list(texts), show_progress_bar=False)
    return vectors


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def _has_any(features: Sequence[str]) -> bool:
    path = Path("/proc/cpuinfo")
    flags = path.read_text().split() if path.exists() else []
    return any(feature in flags for feature in features)
