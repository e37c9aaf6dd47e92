/* The two ways `tessera devices` shows a device, and what they share. */
#ifndef TSR_CLI_DEVICES_H
#define TSR_CLI_DEVICES_H

#include <stdio.h>

#include "tessera/tuning.h"

/* "discrete", "integrated", "virtual", "cpu" or "other". */
const char *cli_device_type(tsr_device_type type);

#define CLI_VERSION_TEXT 32
/* A packed Vulkan version as "1.3.230". */
char *cli_vulkan_version(uint32_t version, char text[CLI_VERSION_TEXT]);

#define CLI_BYTES_TEXT 32
/* "2.0 GiB"; exact where the number is a whole one. */
char *cli_bytes(uint64_t bytes, char text[CLI_BYTES_TEXT]);

#define CLI_UTC_TEXT 40
/* Seconds since 1970 as "2026-01-02T03:04:05Z". */
char *cli_utc(int64_t seconds, char text[CLI_UTC_TEXT]);

/* "none", "used", "ignored" or "refused". */
const char *cli_tuning_state(tsr_tuning_state state);

void cli_device_print(FILE *out, const tsr_device_info *info);

#endif
