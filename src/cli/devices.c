/* tessera devices: what Vulkan devices this machine has, and what each of them can do. */
#include <stdbool.h>

#include "cli/command.h"
#include "cli/devices.h"
#include "cli/json.h"
#include "cli/options.h"
#include "tsr_config.h"

static bool json;
static const cli_option options[] = {
    {"json", NULL, "print JSON instead of text", .flag = &json},
    {0},
};

static void help(FILE *out)
{
    fputs("Lists every Vulkan device with its capabilities. A device that tessera cannot use is "
          "listed with the\n"
          "reason. The numbers are those that TESSERA_DEVICE and --device take.\n",
          out);
    cli_options_help(out, options);
}

static void print_json(const tsr_device_list *list)
{
    json_t *document = cli_json_document("tessera.devices", 1);
    json_t *build = cli_json_add_object(document, "build");
    cli_json_bool(build, "coopmat_compiler", TSR__GLSLC_COOPMAT);
    cli_json_bool(build, "coopmat_bf16_compiler", TSR__GLSLC_COOPMAT_BF16);
    cli_json_bool(build, "runtime_glsl", TSR__HAVE_SHADERC);
    json_t *devices = cli_json_add_array(document, "devices");
    for (int i = 0; i < list->count; i++)
        cli_json_append(devices, cli_json_device(&list->devices[i]));
    cli_json_print(document);
}

static void print_text(const tsr_device_list *list)
{
    if (list->count == 0)
        puts("No Vulkan device was found. A GPU needs its vendor's or Mesa's Vulkan driver; Mesa's "
             "lavapipe\n"
             "(Debian package mesa-vulkan-drivers) runs on any CPU.");
    for (int i = 0; i < list->count; i++) {
        cli_device_print(stdout, &list->devices[i]);
        puts("");
    }
    printf("tessera %s; this build's shader compiler %s cooperative-matrix kernels%s; kernels from "
           "GLSL at run time: %s\n",
           tsr_version(), TSR__GLSLC_COOPMAT ? "has built" : "cannot build",
           TSR__GLSLC_COOPMAT && !TSR__GLSLC_COOPMAT_BF16 ? ", but not those of bf16" : "",
           TSR__HAVE_SHADERC ? "yes" : "no");
}

static int run(int argc, char **argv)
{
    int words;
    int code = cli_options_read("devices", options, argc, argv, 0, NULL, &words);
    if (code != CLI_DONE)
        return code;
    tsr_device_list list;
    if (tsr_device_list_init(&list) != TSR_OK)
        return cli_failed("devices: %s", tsr_last_error());
    if (json)
        print_json(&list);
    else
        print_text(&list);
    tsr_device_list_finish(&list);
    return CLI_DONE;
}

const cli_command cli_devices = {
    .name = "devices",
    .usage = "[--json]",
    .summary = "the Vulkan devices of this machine and what they can do",
    .run = run,
    .help = help,
};
