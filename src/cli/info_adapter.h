/* tessera info, of an adapter. */
#ifndef TSR_CLI_INFO_ADAPTER_H
#define TSR_CLI_INFO_ADAPTER_H

#include <stdbool.h>

/* If the path is that of an adapter, describes it, sets *code to the exit code, and returns true. A
 * folder counts as one if it has an adapter_config.json but no config.json, a file if it is a GGUF
 * adapter. */
bool info_adapter(const char *path, bool as_json, int *code);

#endif
