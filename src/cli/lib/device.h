/* Formats a device for the tool's output. */
#ifndef TSR_CLI_LIB_DEVICE_H
#define TSR_CLI_LIB_DEVICE_H

#include <jansson.h>

#include "tool_seam.h"

/* Returns "discrete", "integrated", "virtual", "cpu" or "other". */
const char *cli_device_type(tsr_device_type type);

#define CLI_VERSION_TEXT 32
/* Formats a packed Vulkan version as in "1.3.230". Returns `text`. */
char *cli_vulkan_version(uint32_t version, char text[CLI_VERSION_TEXT]);

/* Returns "none", "used", "ignored" or "refused". */
const char *cli_tuning_state(tsr__tuning_state state);

/* Returns all properties of a device as JSON. docs/tessera.1 describes them. */
json_t *cli_json_device(const tsr_device_info *info);

#endif
