// Lists each float32 kernel of Paddle's registry for float16 too, so that a PIR program of float16 can be built, and
// never run, by a build of Paddle for CPUs. Returns how many it added.
#include "paddle/phi/core/kernel_factory.h"

extern "C" int pretend_float16() {
  int added = 0;
  for (auto& op : phi::KernelFactory::Instance().kernels()) {
    std::vector<std::pair<phi::KernelKey, phi::Kernel>> more;
    for (auto& kernel : op.second) {
      if (kernel.first.dtype() == phi::DataType::FLOAT32) {
        more.emplace_back(phi::KernelKey(kernel.first.backend(), kernel.first.layout(), phi::DataType::FLOAT16),
                          kernel.second);
      }
    }
    for (auto& kernel : more) added += op.second.emplace(kernel.first, kernel.second).second;
  }
  return added;
}
