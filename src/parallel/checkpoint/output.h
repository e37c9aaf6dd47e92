/* A file that a checkpoint is written to. It has a temporary name until it is complete and on the
 * disk. Tests can make each system call fail. */
#ifndef TSR_PARALLEL_CHECKPOINT_OUTPUT_H
#define TSR_PARALLEL_CHECKPOINT_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef struct tsr__checkpoint_output {
    const char *who;               /* the beginning of the error texts */
    char *path, *partial, *folder; /* the final and the temporary name, and their folder */
    int descriptor;                /* -1: not open */
    bool made;                     /* `partial` was created here and has not been renamed yet */
} tsr__checkpoint_output;

/* Returns the status of a failed system call on a file. `what` is the verb in the error text, such
 * as "write". */
tsr_status tsr__checkpoint_output_fail(const char *who, int error, const char *what,
                                       const char *path);
/* Returns whether a test wants the system call named `site` to fail, and if so, sets errno. */
bool tsr__checkpoint_output_faulty(const char *site);

/* Sets the names: `path`, and `path` with `ending` appended as the temporary one. Opens nothing.
 * The output must be finished, also after a failure. */
tsr_status tsr__checkpoint_output_init(tsr__checkpoint_output *output, const char *who,
                                       const char *path, const char *ending) TSR_NODISCARD;
/* Closes the file, and removes it if it has not got its final name. */
void tsr__checkpoint_output_finish(tsr__checkpoint_output *output);

/* Creates the file and reserves `size_bytes` for it, so that a disk that is too small fails here.
 * First unlinks an older file of the temporary name: a process that still writes to the older file
 * then cannot change the new one. */
tsr_status tsr__checkpoint_output_create(tsr__checkpoint_output *output,
                                         uint64_t size_bytes) TSR_NODISCARD;
tsr_status tsr__checkpoint_output_write(tsr__checkpoint_output *output, const void *data,
                                        uint64_t size, uint64_t at_bytes) TSR_NODISCARD;
/* Blocks until all that was written is on the disk. */
tsr_status tsr__checkpoint_output_sync(tsr__checkpoint_output *output) TSR_NODISCARD;
/* Gives the file its final name, and blocks until that is on the disk. */
tsr_status tsr__checkpoint_output_commit(tsr__checkpoint_output *output) TSR_NODISCARD;
/* Synchronises the folder to the disk. A new file can be found after a crash only if its folder is
 * on the disk too. */
tsr_status tsr__checkpoint_output_sync_folder(const tsr__checkpoint_output *output) TSR_NODISCARD;

#endif
