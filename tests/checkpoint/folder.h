/* A folder for each test, and functions for the files in it. */
#ifndef TESTS_CHECKPOINT_FOLDER_H
#define TESTS_CHECKPOINT_FOLDER_H

#include "support/check_main.h"
#include "tessera/checkpoint.h"

/* For tcase_add_unchecked_fixture. */
void folder_make(void);
void folder_remove(void);

/* Returns the path of a file in the folder. The returned memory is reused after eight further
 * calls. */
const char *in_folder(const char *name);

/* Returns a file's bytes, or NULL if there is no such file; free() them. */
char *read_file(const char *path, size_t *size);
void write_file(const char *path, const void *data, size_t size);
/* Returns the number of files in the folder. */
int files_in_folder(void);

/* Returns an entry for a full tensor in host memory. */
tsr_checkpoint_entry host_entry(const char *name, tsr_dtype dtype, int ndim, const int64_t *shape,
                                void *data);

#endif
