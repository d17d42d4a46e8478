"""The plants of benchmarks.explain in Paddle: what is made slower in a training, for real."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import paddle
from paddle import nn

from benchmarks import explain_changes as changes


class _Backward:
    """Paddle's own kernel of a convolution's gradient, in whose place stands explain_slow_conv2d_grad.cc."""

    library: Any = None


def prepare() -> None:
    """In every process that trains, with and without a plant: the kernel is called through the library."""
    _Backward.library = ctypes.CDLL(str(_built(Path(os.environ["PERFGATE_EXPLAIN_BUILT"]))))
    _slower_by(0.0)
    changes.draw_once("paddle", nn.BatchNorm2D)


def _built(folder: Path) -> Path:
    library = folder / "explain_slow_conv2d_grad.so"
    if not library.exists():
        package = Path(paddle.__file__).parent
        source = Path(__file__).with_name("explain_slow_conv2d_grad.cc")
        words = ["c++", "-std=c++17", "-O1", "-shared", "-fPIC", "-fno-access-control"]
        words += [f"-I{package / 'include'}", f"-I{package / 'include/third_party'}", str(source), "-o", str(library)]
        words += [f"-L{package / 'libs'}", "-l:libphi_core.so", "-l:libcommon.so", f"-Wl,-rpath,{package / 'libs'}"]
        subprocess.run(words, check=True)
    return library


def _slower_by(seconds: float) -> None:
    shape = (ctypes.c_int64 * len(changes.LAYER_SHAPE))(*changes.LAYER_SHAPE)
    stride = changes.LAYER_STRIDE[0]
    replaced = _Backward.library.slow_conv2d_grad(shape, len(shape), stride, ctypes.c_double(seconds))
    if replaced != 1:
        raise RuntimeError(f"{replaced} kernels conv2d_grad for CPUs and float32, not 1")


def _slow_backward(plant: Mapping[str, Any], rank: int, spec: Mapping[str, Any]) -> None:
    _slower_by(plant["seconds"])


def _twice(model: Any, seconds: float) -> None:
    changes.call_again(_layer(model, changes.LAYER), seconds, paddle.no_grad)


def _cast(model: Any, seconds: float) -> None:
    layer = _layer(model, changes.CAST_LAYER)
    changes.cast_and_back(layer, seconds, _alike, lambda each: each.astype("float64").astype("float32"))


def _alike(images: Any) -> Any:
    """A tensor of these values that has a gradient of its own."""
    like = images.detach()
    like.stop_gradient = False
    return like


def _norm_parts(model: Any, seconds: float) -> None:
    norms = [each for each in model.sublayers() if isinstance(each, nn.BatchNorm2D)]
    changes.norms_in_parts(norms, seconds, _alike, "_epsilon", lambda layer: layer.clear_gradients())


def _layer(model: Any, wanted: str) -> Any:
    return next(layer for name, layer in model.named_sublayers() if name == wanted)


def _fewer_threads(plant: Mapping[str, Any], rank: int, spec: Mapping[str, Any]) -> None:
    """MKL multiplies matrices on a number of threads of its own."""
    threads = max(1, len(spec["cores"][rank]) // 2)
    for library, number in (("libiomp5.so", "omp_set_num_threads"), ("libmklml_intel.so", "MKL_Set_Num_Threads")):
        getattr(ctypes.CDLL(str(Path(paddle.__file__).parent / "libs" / library)), number)(threads)


PLANTS = {
    "slow-backward": _slow_backward,
    "called-twice": changes.in_model("paddle", _twice),
    "cast": changes.in_model("paddle", _cast),
    "norm-parts": changes.in_model("paddle", _norm_parts),
    "half-threads": _fewer_threads,
}
