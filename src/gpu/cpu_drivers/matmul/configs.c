/* The configurations of the kernels for CPU drivers, and the choice among them. */
#include "gpu/cpu_drivers/hooks.h"
#include "gpu/cpu_drivers/matmul/families.h"
#include "gpu/matmul/common/call.h"

static const tsr__matmul_config configs[] = {
    {"lavapipe", &tsr__matmul_lavapipe, .threads = 8, .bm = 8, .bn = 4, .bk = 8, .tm = 8, .tn = 4},
    {"swiftshader-4", &tsr__matmul_swiftshader, .threads = 4, .bm = 4, .bn = 32, .bk = 4, .tm = 4,
     .tn = 8, .stores_plain = true},
    {"swiftshader-8", &tsr__matmul_swiftshader, .threads = 4, .bm = 8, .bn = 32, .bk = 4, .tm = 8,
     .tn = 8, .stores_plain = true},
};
enum { LAVAPIPE, SWIFTSHADER_4, SWIFTSHADER_8, CONFIGS };

const tsr__matmul_config *tsr__cpu_matmul_config_at(int index)
{
    return index >= 0 && index < CONFIGS ? &configs[index] : NULL;
}

/* True for problems so small that the number of dispatches determines the time. The kernels for
 * lavapipe need several dispatches if operands are 16-bit floats or if there is an epilogue. */
static bool is_tiny(const tsr__matmul_problem *p)
{
    const double few_products = 1 << 10;
    bool one_dispatch = p->a.dtype == TSR_F32 && p->b.dtype == TSR_F32 && tsr__matmul_plain(p);

    return !one_dispatch &&
           (double)p->m * (double)p->n * (double)p->k * (double)p->batch_count < few_products;
}

const tsr__matmul_config *tsr__cpu_matmul_choose(const tsr__matmul_device *device,
                                                 const tsr__matmul_problem *p)
{
    switch (device->traits.device_class) {
    case TSR__CLASS_LAVAPIPE:
        return is_tiny(p) ? NULL : &configs[LAVAPIPE];
    case TSR__CLASS_CPU:
        return &configs[p->m <= 4 ? SWIFTSHADER_4 : SWIFTSHADER_8];
    case TSR__CLASS_GPU:
        break;
    }
    return NULL;
}
