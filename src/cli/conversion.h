/* Running a conversion of a model's files, for the commands that do so. */
#ifndef TSR_CLI_CONVERSION_H
#define TSR_CLI_CONVERSION_H

#include <stdbool.h>
#include <stddef.h>

#include "tessera/convert.h"

/* For cli_option.read: reads the name of a mixture or of a dtype into the tsr_convert_params at
 * `user`. */
bool cli_conversion_read_type(void *user, const char *text, char *problem, size_t size);

/* Converts a model, with progress on a terminal and notes unless `quiet`. A signal stops it and
 * removes what it has written. Returns an exit code; unless that is CLI_DONE, has said why. */
int cli_conversion_run(const char *command, const char *source, const char *destination,
                       const tsr_convert_params *params, bool quiet, tsr_convert_stats *stats);

#endif
