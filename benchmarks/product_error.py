"""How far a matrix product of Paddle's on this CPU is from the exact one: ``python -m benchmarks.product_error``.

Shows that other kernels are not another precision: root mean square error over that of the result, for
float32 matrices as long as ResNet50's longest sums (512 channels of 3 x 3). In float32 about 3e-7; with
inputs rounded to bfloat16 2e-3.
"""

from __future__ import annotations

import sys


def main() -> int:
    import numpy
    import paddle

    random = numpy.random.RandomState(0)
    left, right = (random.standard_normal(shape).astype("float32") for shape in ((512, 4608), (4608, 512)))
    exact = left.astype("float64") @ right.astype("float64")
    paddle.set_device("cpu")
    product = paddle.matmul(paddle.to_tensor(left), paddle.to_tensor(right)).numpy()
    print(f"{numpy.sqrt(((product - exact) ** 2).mean() / (exact**2).mean()):.2e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
