"""The plants of benchmarks.explain in Paddle: what is made slower in a training, for real."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import paddle
from paddle import nn

from benchmarks.explain_changes import change_once, in_model, shortest_seconds

LAYER = "blocks.7.spatial.convolution"
CAST_LAYER = "blocks.0.expand.norm"
# The weights and the stride of LAYER, which no other layer has.
_SHAPE, _STRIDE = (256, 256, 3, 3), 2


class _Backward:
    """Paddle's own kernel of a convolution's gradient, in whose place stands explain_slow_conv2d_grad.cc."""

    library: Any = None


def prepare() -> None:
    """In every process that trains, with and without a plant: the kernel is called through the library."""
    _Backward.library = ctypes.CDLL(str(_built(Path(os.environ["PERFGATE_EXPLAIN_BUILT"]))))
    _slower_by(0.0)
    if os.environ["OMP_NUM_THREADS"] == "1":
        _draw_once()


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
    shape = (ctypes.c_int64 * len(_SHAPE))(*_SHAPE)
    replaced = _Backward.library.slow_conv2d_grad(shape, len(_SHAPE), _STRIDE, ctypes.c_double(seconds))
    if replaced != 1:
        raise RuntimeError(f"{replaced} kernels conv2d_grad for CPUs and float32, not 1")


def _draw_once() -> None:
    """The weights are drawn once, for all runs. Not where threads compute: none survives a fork."""
    from helpers.trainers.contract.models import Model
    from helpers.trainers.paddle import models, steps

    model = models.network_of(Model.RESNET50.spec, nn.BatchNorm2D)
    steps.network_of = lambda *_: model


def _slow_backward(plant: Mapping[str, Any], rank: int, spec: Mapping[str, Any]) -> None:
    _slower_by(plant["seconds"])


def _twice(model: Any, seconds: float) -> None:
    change_once(_layer(model, LAYER), lambda forward, images: _called_again(forward, images, seconds))


def _called_again(forward: Callable[[Any], Any], images: Any, seconds: float) -> Callable[[Any], Any]:
    with paddle.no_grad():
        more = max(1, round(seconds / shortest_seconds(lambda: forward(images))))

    def again(given: Any) -> Any:
        for _ in range(more):
            with paddle.no_grad():
                forward(given)
        return forward(given)

    return again


def _cast(model: Any, seconds: float) -> None:
    change_once(_layer(model, CAST_LAYER), lambda forward, images: _cast_and_back(forward, images, seconds))


def _cast_and_back(forward: Callable[[Any], Any], images: Any, seconds: float) -> Callable[[Any], Any]:
    like = images.detach()
    like.stop_gradient = False
    times = max(1, round(seconds / shortest_seconds(lambda: like.astype("float64").astype("float32").sum().backward())))

    def there_and_back(given: Any) -> Any:
        for _ in range(times):
            given = given.astype("float64").astype("float32")
        return forward(given)

    return there_and_back


def _norm_parts(model: Any, seconds: float) -> None:
    """Batch norms, from the first one, until they take so much longer."""
    left = [seconds]
    for layer in [each for each in model.sublayers() if isinstance(each, nn.BatchNorm2D)]:
        change_once(layer, lambda forward, images, layer=layer: _in_parts(layer, forward, images, left))


def _in_parts(layer: Any, forward: Callable[[Any], Any], images: Any, left: list[float]) -> Callable[[Any], Any]:
    if left[0] <= 0:
        return forward

    def parts(given: Any) -> Any:
        mean = given.mean(axis=[0, 2, 3], keepdim=True)
        centred = given - mean
        variance = (centred * centred).mean(axis=[0, 2, 3], keepdim=True)
        scale = layer.weight.reshape([1, -1, 1, 1]) * paddle.rsqrt(variance + layer._epsilon)
        return centred * scale + layer.bias.reshape([1, -1, 1, 1])

    like = images.detach()
    like.stop_gradient = False
    both = [shortest_seconds(lambda norm=norm: norm(like).sum().backward()) for norm in (parts, forward)]
    # The gradients of the tries are not the step's.
    layer.clear_gradients()
    left[0] -= both[0] - both[1]
    return parts


def _layer(model: Any, wanted: str) -> Any:
    return next(layer for name, layer in model.named_sublayers() if name == wanted)


def _fewer_threads(plant: Mapping[str, Any], rank: int, spec: Mapping[str, Any]) -> None:
    """MKL multiplies matrices on a number of threads of its own."""
    threads = max(1, len(spec["cores"][rank]) // 2)
    for library, number in (("libiomp5.so", "omp_set_num_threads"), ("libmklml_intel.so", "MKL_Set_Num_Threads")):
        getattr(ctypes.CDLL(str(Path(paddle.__file__).parent / "libs" / library)), number)(threads)


PLANTS = {
    "slow-backward": _slow_backward,
    "called-twice": in_model("paddle", _twice),
    "cast": in_model("paddle", _cast),
    "norm-parts": in_model("paddle", _norm_parts),
    "half-threads": _fewer_threads,
}
