/* The files of a checkpoint in parts (checkpoint.h), looked at by one process: what they hold,
 * whether they are complete and intact, and all of them as one file. A checkpoint in a single file,
 * from tsr_checkpoint_save or another program, can be looked at, too.
 *
 *     tsr_checkpoint_files *files = NULL;
 *     tsr_checkpoint_files_open(2, (const char *[]){"a/model", "b/model"}, &files);
 *     tsr_checkpoint_files_verify(files);
 *     tsr_checkpoint_files_merge(files, "model.safetensors");
 *     tsr_checkpoint_files_close(&files);
 *
 * The files may be hostile. Threads: opened files do not change, and any number of
 * threads may use them. */
#ifndef TESSERA_CHECKPOINT_FILES_H
#define TESSERA_CHECKPOINT_FILES_H

#include "tessera/checkpoint.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_checkpoint_files tsr_checkpoint_files;

/* What the headers say of all files. The library creates it. */
typedef struct tsr_checkpoint_summary {
    const char *id;      /* the identity of the checkpoint; "" for a checkpoint in a single file */
    uint64_t generation; /* 0 for a checkpoint in a single file */
    const char *missing; /* a sentence about the first missing part; NULL: no part is missing */
    int part_count;
    uint64_t tensor_count;
    /* Pairs of a key and a text, ended by NULL, of the first part that is there; without those that
     * the library writes for its own use. */
    const char *const *metadata;
} tsr_checkpoint_summary;

/* One part, which is a file. The library creates it. */
typedef struct tsr_checkpoint_part {
    const char *path; /* NULL: this part is missing */
    uint64_t size_bytes;
    uint64_t slice_count;
    bool has_checksums;
} tsr_checkpoint_part;

/* One tensor, of which the files have slices. The library creates it. */
typedef struct tsr_checkpoint_tensor {
    const char *name;
    tsr_dtype dtype;
    int ndim;
    int64_t shape[TSR_MAX_DIMS]; /* the shape of the full tensor */
    uint64_t slice_count;
} tsr_checkpoint_tensor;

#define TSR_CHECKPOINT_SLICE_TEXT 192

/* What one file has of a tensor: along dimension `dim` elements offset … offset + length − 1, and
 * of these, in row-major order, `count` elements from element `first` on. */
typedef struct tsr_checkpoint_slice {
    size_t struct_size;
    int part; /* the number of the part, from 0 on */
    int dim;  /* 0 for a full tensor */
    int64_t offset, length;
    uint64_t first, count;
    /* Where in the tensor the slice is, in the notation of NumPy, such as "[:,4:8]" or
     * "[0:4].flat[6:9]"; "" if the slice is all of the tensor. */
    char text[TSR_CHECKPOINT_SLICE_TEXT];
} tsr_checkpoint_slice;

/* Finds the files of a checkpoint. Each path is FOLDER/NAME or its index, for all parts of that
 * name in the folder, or one file. If there is more than one checkpoint, takes the newest
 * generation that is complete; if none is complete, the newest generation. Reads headers only.
 *
 * Errors: TSR_ERR_NOT_FOUND for a file or a checkpoint that does not exist; TSR_ERR_INVALID for
 * wrong headers, for several files that are not parts of a checkpoint, for a folder, and as
 * tsr_checkpoint_load; TSR_ERR_UNSUPPORTED for a dtype that checkpoints do not have; TSR_ERR_IO;
 * TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_checkpoint_files_open(int count, const char *const *paths,
                                                           tsr_checkpoint_files **out);
/* Closes the files and sets *files to NULL. NULL is allowed. */
TSR_API void tsr_checkpoint_files_close(tsr_checkpoint_files **files);

/* Returns what the headers say. This pointer, and those of the next two functions, are valid until
 * the files are closed. */
TSR_API const tsr_checkpoint_summary *
tsr_checkpoint_files_summary(const tsr_checkpoint_files *files);
/* Returns part `index`, which is below part_count of the summary. NULL for any other index. */
TSR_API const tsr_checkpoint_part *tsr_checkpoint_files_part(const tsr_checkpoint_files *files,
                                                             int index);
/* Returns tensor `index`, which is below tensor_count of the summary; tensors are sorted by name.
 * NULL for any other index. */
TSR_API const tsr_checkpoint_tensor *tsr_checkpoint_files_tensor(const tsr_checkpoint_files *files,
                                                                 uint64_t index);
/* Describes slice `index` of tensor number `tensor`. The index is below the tensor's slice_count;
 * slices are in the order of parts. Errors: TSR_ERR_INVALID for a number that is too large. */
TSR_API TSR_NODISCARD tsr_status tsr_checkpoint_files_get_slice(const tsr_checkpoint_files *files,
                                                                uint64_t tensor, uint64_t index,
                                                                tsr_checkpoint_slice *out);

/* Checks that all parts are there, that they have each element of each tensor exactly once, and
 * that the data have the checksums of the headers. Blocks until all data have been read. Parts
 * without checksums are read as well. Errors: TSR_ERR_NOT_FOUND naming a missing part;
 * TSR_ERR_INVALID naming the tensor; TSR_ERR_IO; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_checkpoint_files_verify(const tsr_checkpoint_files *files);

/* Writes one safetensors file with the full tensors, sorted by name, and the metadata. Makes all
 * checks of tsr_checkpoint_files_verify. Copies tensors in small pieces, so it needs memory for the
 * headers and one piece only. Replaces `path` atomically if it is a regular file, when the new file
 * is on the disk. Errors: those of tsr_checkpoint_files_verify; TSR_ERR_IO if `path` is something
 * other than a regular file. */
TSR_API TSR_NODISCARD tsr_status tsr_checkpoint_files_merge(const tsr_checkpoint_files *files,
                                                            const char *path);

#ifdef __cplusplus
}
#endif

#endif
