/* tsr_device_open. device/open.c opens a device and depends on no operator; this file connects the
 * device with what stands above it: the self-tests, which run operators. */
#include "base/error.h"
#include "base/struct_size.h"
#include "gpu/checks/tested_kernels.h"
#include "gpu/device/device.h"
#include "gpu/self_test/self_test.h"

tsr_status tsr_device_open(const tsr_device_params *params, tsr_device **out)
{
    tsr__self_test_mode mode;
    tsr_device *device;

    if (tsr__self_test_mode_wanted(&mode) != TSR_OK)
        return tsr__fail_context(TSR_ERR_INVALID, "device_open");
    TSR__REQUIRE(out != NULL, "device_open: out is NULL");
    TSR__TAKE(tsr_device_params, params);
    TSR__TRY(tsr__device_open(params, &device));
    if (mode != TSR__SELF_TEST_OFF) {
        device->self_tested = true;
        device->admit = tsr__self_test_admit;
    }
    if (mode == TSR__SELF_TEST_FULL)
        tsr__self_test_all(device);
    *out = device;
    return TSR_OK;
}
