/* Formats a device for the tool's output. */
#ifndef TSR_CLI_LIB_DEVICE_H
#define TSR_CLI_LIB_DEVICE_H

#include <jansson.h>

#include "tessera/tuning.h"

/* "discrete", "integrated", "virtual", "cpu" or "other". */
const char *cli_device_type(tsr_device_type type);

#define CLI_VERSION_TEXT 32
/* A packed Vulkan version as "1.3.230". Returns `text`. */
char *cli_vulkan_version(uint32_t version, char text[CLI_VERSION_TEXT]);

/* "none", "used", "ignored" or "refused". */
const char *cli_tuning_state(tsr_tuning_state state);

/* Everything known about a device, as docs/tessera.1 documents it. */
json_t *cli_json_device(const tsr_device_info *info);

#endif
