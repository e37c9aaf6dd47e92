/* A folder for each test, and files in it. */
#ifndef TESTS_CHECKPOINT_FOLDER_H
#define TESTS_CHECKPOINT_FOLDER_H

#include "support/check_main.h"
#include "tessera/checkpoint.h"

/* For tcase_add_unchecked_fixture. */
void folder_make(void);
void folder_remove(void);

/* The path of a file in it; of the last eight that were asked for, each has memory of its own. */
const char *in_folder(const char *name);

/* A file's bytes, to be freed; NULL when there is none. */
char *read_file(const char *path, size_t *size);
void write_file(const char *path, const void *data, size_t size);
/* How many files the folder has. */
int files_in_folder(void);

/* An entry in host memory, whole. */
tsr_checkpoint_entry host_entry(const char *name, tsr_dtype dtype, int ndim, const int64_t *shape,
                                void *data);

#endif
