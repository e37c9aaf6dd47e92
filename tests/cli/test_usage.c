/* Arguments, exit codes and help, on a machine without a driver. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/tool.h"
#include "support/check_main.h"
#include "tessera/base.h"
#include "tsr_config.h"

START_TEST(prints_its_version)
{
    tool_result result = tool_run("--version");
    char expected[64];
    snprintf(expected, sizeof expected, "tessera %s\n", tsr_version());
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_str_eq(result.out, expected);
    ck_assert_str_eq(result.err, "");
    tool_result_free(&result);
}
END_TEST

START_TEST(help_names_every_command)
{
    static const char *const ways[] = {"help", "--help", "-h"};
    for (int i = 0; i < 3; i++) {
        tool_result result = tool_run(ways[i]);
        ck_assert_int_eq(result.exit_code, 0);
        ck_assert_ptr_nonnull(strstr(result.out, "\n  devices "));
        ck_assert_ptr_nonnull(strstr(result.out, "\n  bench "));
        ck_assert_ptr_nonnull(strstr(result.out, "\n  help "));
        ck_assert_str_eq(result.err, "");
        tool_result_free(&result);
    }
}
END_TEST

static const struct {
    const char *arguments, *words;
} helps[] = {
    {"help devices", "usage: tessera devices"},
    {"devices --help", "  --json"},
    {"devices --json -h", "  --json"},
    {"help help", "usage: tessera help"},
    {"help bench", "usage: tessera bench"},
#if TEST_HAVE_GPU_BENCH
    {"bench --help", "--shape MxKxN"},
    {"bench matmul --help", "\nmatmul:\n"},
    {"help bench compare", "--of-ceiling"},
    {"bench report --help", "usage: tessera bench report FILE"},
    {"bench compare a b -h", "--threshold PERCENT"},
#endif
};

START_TEST(help_explains_a_command)
{
    tool_result result = tool_run(helps[_i].arguments);
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_msg(strstr(result.out, helps[_i].words) != NULL, "%s: no '%s' in: %s",
                  helps[_i].arguments, helps[_i].words, result.out);
    ck_assert_str_eq(result.err, "");
    tool_result_free(&result);
}
END_TEST

/* Exit code 2, one sentence on standard error, nothing on standard output. */
static const struct {
    const char *arguments, *sentence;
} mistakes[] = {
    {"", "tessera: a command is missing; 'tessera help' lists them\n"},
    {"frobnicate", "tessera: unknown command 'frobnicate'; 'tessera help' lists them\n"},
    {"--frobnicate", "tessera: unknown option '--frobnicate'; 'tessera help' lists the commands\n"},
    {"--version --json", "tessera: --version takes no argument, but '--json' follows it\n"},
    {"help frobnicate", "tessera: there is no command 'frobnicate'; 'tessera help' lists them\n"},
    {"help help bench",
     "tessera: help explains one command at a time, but 'bench' follows 'help'\n"},
    {"help bench copy",
     "tessera: help explains one command at a time, but 'copy' follows 'bench'\n"},
    {"devices 0", "tessera: devices: unexpected argument '0'\n"},
    {"devices -- --json", "tessera: devices: unexpected argument '--json'\n"},
    {"devices --jsonx",
     "tessera: devices: unknown option '--jsonx'; 'tessera help devices' lists them\n"},
    {"devices -json",
     "tessera: devices: unknown option '-json'; 'tessera help devices' lists them\n"},
    {"devices --json=yes", "tessera: devices: --json takes no value\n"},
#if TEST_HAVE_GPU_BENCH
    {"bench frob",
     "tessera: bench: there is no benchmark 'frob'; 'tessera help bench' lists them\n"},
    {"bench matmul copy", "tessera: bench: unexpected argument 'copy'\n"},
    {"bench matmul --shape 3x4",
     "tessera: bench: --shape takes MxKxN, each from 1 to 16777216, not '3x4'\n"},
    {"bench matmul --shape 3x4x5x6",
     "tessera: bench: --shape takes MxKxN, each from 1 to 16777216, not '3x4x5x6'\n"},
    {"bench matmul --shape 3x0x5",
     "tessera: bench: --shape takes MxKxN, each from 1 to 16777216, not '3x0x5'\n"},
    {"bench matmul --shape 3x+4x5",
     "tessera: bench: --shape takes MxKxN, each from 1 to 16777216, not '3x+4x5'\n"},
    {"bench matmul --shape 3x4x16777217",
     "tessera: bench: --shape takes MxKxN, each from 1 to 16777216, not '3x4x16777217'\n"},
    {"bench matmul --shape 16777216x256x1",
     "tessera: bench: --shape 16777216x256x1 has a matrix of more than 2147483648 elements\n"},
    {"bench matmul --dtype i32", "tessera: bench: --dtype takes f32, f16 or bf16, not 'i32'\n"},
    {"bench matmul --dtype f16 --dtype f16", "tessera: bench: --dtype f16 is given twice\n"},
    {"bench matmul --size 1", "tessera: bench: matmul does not take --size\n"},
    {"bench copy --size 0", "tessera: bench: --size takes an integer from 1 to 1024, not '0'\n"},
    {"bench copy --size 1e3",
     "tessera: bench: --size takes an integer from 1 to 1024, not '1e3'\n"},
    {"bench copy --size 99999999999999999999",
     "tessera: bench: --size takes an integer from 1 to 1024, not '99999999999999999999'\n"},
    {"bench copy --size=", "tessera: bench: --size takes an integer from 1 to 1024, not ''\n"},
    {"bench copy --size", "tessera: bench: --size needs a value: MIB\n"},
    {"bench copy --size --json", "tessera: bench: --size needs a value: MIB\n"},
    {"bench copy --peer", "tessera: bench: copy does not take --peer\n"},
    {"bench launch --shape 1x1x1", "tessera: bench: launch does not take --shape\n"},
    {"bench launch --dtype f16", "tessera: bench: launch does not take --dtype\n"},
    {"bench matmul --time -1",
     "tessera: bench: --time takes a number from 0.001 to 600, not '-1'\n"},
    {"bench matmul --time nan",
     "tessera: bench: --time takes a number from 0.001 to 600, not 'nan'\n"},
    {"bench matmul --time 1s",
     "tessera: bench: --time takes a number from 0.001 to 600, not '1s'\n"},
#endif
};

START_TEST(refuses_wrong_arguments)
{
    tool_result result = tool_run(mistakes[_i].arguments);
    ck_assert_str_eq(result.err, mistakes[_i].sentence);
    ck_assert_str_eq(result.out, "");
    ck_assert_int_eq(result.exit_code, 2);
    tool_result_free(&result);
}
END_TEST

#if TSR__HAVE_VULKAN
START_TEST(no_device_is_an_empty_list)
{
    tool_result result = tool_run("devices");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_str_eq(result.err, "");
    ck_assert_ptr_nonnull(strstr(result.out, "No Vulkan device was found."));
    tool_result_free(&result);

    json_t *document = tool_json("devices --json", "tessera.devices");
    ck_assert_int_eq((int)json_array_size(tool_member(document, "devices")), 0);
    ck_assert(json_is_boolean(tool_member(tool_member(document, "build"), "coopmat_compiler")));
    json_decref(document);
}
END_TEST
#endif

/* Exit code 1, and the library's own words. */
static void fails(const char *arguments, const char *words)
{
    tool_result result = tool_run(arguments);
    ck_assert_int_eq(result.exit_code, 1);
    ck_assert_str_eq(result.out, "");
    ck_assert_msg(strncmp(result.err, "tessera: ", 9) == 0 && strstr(result.err, words) != NULL,
                  "no '%s' in: %s", words, result.err);
    tool_result_free(&result);
}

START_TEST(failures_are_told_apart_from_mistakes)
{
#if !TSR__HAVE_VULKAN
    fails("devices", "Vulkan");
#endif
#if TEST_HAVE_GPU_BENCH
    fails("bench matmul --time 0.001", "there is no Vulkan driver");
    fails("bench launch --device 7", "there is no Vulkan driver");
    fails("bench --tune", "there is no Vulkan driver");
#elif !TEST_HAVE_BENCH
    fails("bench matmul", "built without benchmarks");
#endif
}
END_TEST

START_TEST(a_full_disk_is_a_failure)
{
    /* The one thing here that needs a shell. */
    int status = system(TEST_TOOL " help >/dev/full 2>/dev/null");
    ck_assert_int_eq(status, 1 << 8);
}
END_TEST

TESTS(usage)
{
    tcase_add_test(tests, prints_its_version);
    tcase_add_test(tests, help_names_every_command);
    tcase_add_loop_test(tests, help_explains_a_command, 0, (int)(sizeof helps / sizeof helps[0]));
    tcase_add_loop_test(tests, refuses_wrong_arguments, 0,
                        (int)(sizeof mistakes / sizeof mistakes[0]));
#if TSR__HAVE_VULKAN
    tcase_add_test(tests, no_device_is_an_empty_list);
#endif
    tcase_add_test(tests, failures_are_told_apart_from_mistakes);
    tcase_add_test(tests, a_full_disk_is_a_failure);
}
