/* A model whose tensors are divided over any number of ranks in every way that a checkpoint allows,
 * and folders of several hosts. */
#ifndef TESTS_CHECKPOINT_HOSTS_H
#define TESTS_CHECKPOINT_HOSTS_H

#include "checkpoint/folder.h"

#define HOSTS_TENSORS 7

typedef struct hosts_model {
    tsr_checkpoint_entry entries[HOSTS_TENSORS];
    /* For each tensor, the bytes of this rank's elements. */
    unsigned char memory[HOSTS_TENSORS][4096];
} hosts_model;

/* Makes the entries of a rank, and fills their memory with the values of `version`. */
void hosts_model_init(hosts_model *model, int rank, int size, int version);
/* Fills the memory with bytes that no version has. */
void hosts_model_clear(hosts_model *model);
/* Returns the version that all elements of the rank have, or -1 if they do not have the same
 * one. */
int hosts_model_version(const hosts_model *model, int rank, int size, int highest);

/* For fixtures: folders "a", "b", "c" and "all" in the folder of the test, and their removal. */
void hosts_make(void);
void hosts_remove(void);
/* Returns the path of a file in a host's folder. The returned memory is reused after eight further
 * calls. */
const char *on_host(const char *host, const char *file);
/* Copies all files of a host to another. */
void hosts_copy(const char *from, const char *to);
/* Returns the number of files on a host. */
int hosts_files(const char *host);
void hosts_empty(const char *host);

#endif
