/* Merging a checkpoint's files, for callers that may stop it. */
#ifndef TSR_PARALLEL_CHECKPOINT_FILES_H
#define TSR_PARALLEL_CHECKPOINT_FILES_H

#include <stdbool.h>

#include "tessera/checkpoint_files.h"

/* As tsr_checkpoint_files_merge, but asks now and then whether to go on. If not, it removes what it
 * has written and returns TSR_ERR_IO. `goes_on` may be NULL. */
tsr_status tsr__checkpoint_files_merge(const tsr_checkpoint_files *files, const char *path,
                                       bool (*goes_on)(void)) TSR_NODISCARD;

#endif
