// Stands in the place of Paddle's kernel conv2d_grad for CPUs and float32, calls it, and takes longer in one layer.
#include <ctime>
#include <string>
#include <vector>

#include "paddle/phi/core/dense_tensor.h"
#include "paddle/phi/core/device_context.h"
#include "paddle/phi/core/kernel_factory.h"

namespace {

// phi::ConvGradKernel of paddle/phi/kernels/conv_grad_kernel.h.
using Kernel = void (*)(const phi::DeviceContext&, const phi::DenseTensor&, const phi::DenseTensor&,
                        const phi::DenseTensor&, const std::vector<int>&, const std::vector<int>&, const std::string&,
                        const std::vector<int>&, int, const std::string&, phi::DenseTensor*, phi::DenseTensor*);

Kernel own = nullptr;
double added_seconds = 0;
std::vector<int64_t> filter_shape;
int filter_stride = 0;

// By the thread's own clock: what others do on the core does not count.
double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void Slower(const phi::DeviceContext& context, const phi::DenseTensor& input, const phi::DenseTensor& filter,
            const phi::DenseTensor& gradient, const std::vector<int>& strides, const std::vector<int>& paddings,
            const std::string& algorithm, const std::vector<int>& dilations, int groups, const std::string& layout,
            phi::DenseTensor* input_gradient, phi::DenseTensor* filter_gradient) {
  own(context, input, filter, gradient, strides, paddings, algorithm, dilations, groups, layout, input_gradient,
      filter_gradient);
  if (added_seconds <= 0 || strides[0] != filter_stride) return;
  if (filter.dims().size() != static_cast<int>(filter_shape.size())) return;
  for (size_t at = 0; at < filter_shape.size(); ++at) {
    if (filter.dims()[static_cast<int>(at)] != filter_shape[at]) return;
  }
  for (double end = ThreadSeconds() + added_seconds; ThreadSeconds() < end;) {
  }
}

}  // namespace

// Returns how many kernels it stands in the place of: 1.
extern "C" int slow_conv2d_grad(const int64_t* shape, int dimensions, int stride, double seconds) {
  filter_shape.assign(shape, shape + dimensions);
  filter_stride = stride;
  added_seconds = seconds;
  if (own != nullptr) return 1;
  int replaced = 0;
  for (auto& each : phi::KernelFactory::Instance().kernels()["conv2d_grad"]) {
    if (each.first.backend() == phi::Backend::CPU && each.first.dtype() == phi::DataType::FLOAT32) {
      own = reinterpret_cast<Kernel>(each.second.variadic_fn_);
      each.second.variadic_fn_ = reinterpret_cast<void*>(&Slower);
      ++replaced;
    }
  }
  return replaced;
}
