#include <stdio.h>

#include "support/check_main.h"
#include "tessera/base.h"
#include "tsr_config.h"

/* meson.build has the version, too, from which the library's version and its SONAME come. */
START_TEST(headers_and_build_have_the_same_version)
{
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", TSR_VERSION_MAJOR, TSR_VERSION_MINOR,
             TSR_VERSION_PATCH);
    ck_assert_str_eq(text, tsr_version());
    ck_assert_str_eq(text, TSR__VERSION);
    ck_assert_int_eq(TSR_VERSION,
                     TSR_VERSION_MAJOR * 10000 + TSR_VERSION_MINOR * 100 + TSR_VERSION_PATCH);
}
END_TEST

START_TEST(features_are_those_of_the_build)
{
    ck_assert(tsr_has("vulkan") == (bool)TSR__HAVE_VULKAN);
    ck_assert(tsr_has("ucx") == (bool)TSR__HAVE_UCX);
    ck_assert(tsr_has("pmix") == (bool)TSR__HAVE_PMIX);
    ck_assert(tsr_has("shaderc") == (bool)TSR__HAVE_SHADERC);
    ck_assert(tsr_has("cpu_kernels") == (bool)TSR__HAVE_CPU_KERNELS);
    ck_assert(!tsr_has("Vulkan") && !tsr_has("") && !tsr_has(NULL));
    ck_assert(!tsr_has("pmix") || tsr_has("ucx"));
}
END_TEST

TESTS(version)
{
    tcase_add_test(tests, headers_and_build_have_the_same_version);
    tcase_add_test(tests, features_are_those_of_the_build);
}
