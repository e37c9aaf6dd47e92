/* A folder for each test, and files in it. */
#ifndef TESTS_CHECKPOINT_FOLDER_H
#define TESTS_CHECKPOINT_FOLDER_H

#include "support/check_main.h"
#include "tessera/checkpoint.h"

/* For tcase_add_unchecked_fixture. */
void folder_make(void);
void folder_remove(void);

/* The path of a file in it. The returned memory is reused after eight further calls. */
const char *in_folder(const char *name);

/* Returns a file's bytes, or NULL if there is no such file; free() them. */
char *read_file(const char *path, size_t *size);
void write_file(const char *path, const void *data, size_t size);
/* The number of files in the folder. */
int files_in_folder(void);

/* An entry for a full tensor in host memory. */
tsr_checkpoint_entry host_entry(const char *name, tsr_dtype dtype, int ndim, const int64_t *shape,
                                void *data);

#endif
