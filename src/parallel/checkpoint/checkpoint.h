/* Internals of checkpoints.
 *
 *     entry.c     checks the caller's entries
 *     agree.c     what ranks exchange: failures, checksums, and who writes which part
 *     layout.c    where tensors are in a file, and its header
 *     checksum.c  checksums of tensors that ranks write or read in parts
 *     transfer.c  copies between a rank's part and its ranges of a file
 *     save.c, load.c, metadata.c
 *     training.c  files with optimizer state: what FSDP models and optimizers have in common */
#ifndef TSR_PARALLEL_CHECKPOINT_H
#define TSR_PARALLEL_CHECKPOINT_H

#include "base/error.h"
#include "tessera/checkpoint.h"

/* The deadline while ranks wait for each other's disks: 10 minutes. */
#define TSR__CHECKPOINT_PATIENCE_NS UINT64_C(600000000000)

/* entry.c ---------------------------------------------------------------------------------------
 */

/* The part of an entry: it has `outer` rows of `row` elements each. A row of the full tensor has
 * `whole_row` elements, and the part's row starts at element `start` of it. */
typedef struct tsr__checkpoint_part {
    uint64_t outer, row, whole_row, start;
} tsr__checkpoint_part;

/* Checks everything in the caller's arguments that a rank can check alone. `who` begins the error
 * texts. If `saving` is false, the memory of the entries must be writable. */
tsr_status tsr__checkpoint_check(const char *who, const char *path, const tsr_stream *stream,
                                 bool saving, int count,
                                 const tsr_checkpoint_entry *entries) TSR_NODISCARD;
/* The part of an entry that has been checked. */
tsr__checkpoint_part tsr__checkpoint_part_of(const tsr_checkpoint_entry *entry);
/* The bytes of an element, and the dtype's name. They support f64, which tensors do not have. */
static inline uint64_t tsr__checkpoint_width(tsr_dtype dtype)
{
    return dtype == TSR_F64 ? 8 : tsr_dtype_size(dtype);
}
static inline const char *tsr__checkpoint_dtype(tsr_dtype dtype)
{
    return dtype == TSR_F64 ? "f64" : tsr_dtype_name(dtype);
}
/* The number of elements of the full tensor. */
uint64_t tsr__checkpoint_elements(const tsr_checkpoint_entry *entry);
/* The size of the divided dimension, and the part's offset and length in it. */
void tsr__checkpoint_along(const tsr_checkpoint_entry *entry, uint64_t *size, uint64_t *offset,
                           uint64_t *length);

/* Sorts entries by the bytes of their names. *out is the permutation, which the caller must
 * free. */
tsr_status tsr__checkpoint_sort(int count, const tsr_checkpoint_entry *entries,
                                int **out) TSR_NODISCARD;

/* agree.c ---------------------------------------------------------------------------------------
 */

/* All ranks call it with their status. If a rank has failed, all ranks return the failure of the
 * lowest such rank, with its text and its number. `comm` may be NULL. */
tsr_status tsr__checkpoint_agree(tsr_comm *comm, const char *who, tsr_status mine) TSR_NODISCARD;

/* Checks that `hash` is the same on all ranks. `what` is the start of the error text, such as "the
 * plan is"; " not the same as on rank 0" follows. */
tsr_status tsr__checkpoint_same(tsr_comm *comm, const char *who, const char *what,
                                uint64_t hash) TSR_NODISCARD;

/* Checks that the parts of all ranks make up the full tensor of each entry, and sets mine[count]:
 * whether this rank writes its part. */
tsr_status tsr__checkpoint_divide(tsr_comm *comm, const char *who, int count,
                                  const tsr_checkpoint_entry *entries, bool *mine) TSR_NODISCARD;

/* The same for reading, where parts need not make up the full tensor. Sets complete[count]: whether
 * the entries of all ranks do; and mine[count]: whether this rank's part counts for the checksum.
 * Every rank gives all tensors of the file, in the same order, with a count of 0 for those that it
 * does not read. */
tsr_status tsr__checkpoint_cover(tsr_comm *comm, const char *who, int count,
                                 const tsr_checkpoint_entry *entries, bool *mine,
                                 bool *complete) TSR_NODISCARD;

/* states[count] = the exclusive or over all ranks. */
tsr_status tsr__checkpoint_combine(tsr_comm *comm, const char *who, int count,
                                   uint32_t *states) TSR_NODISCARD;

/* layout.c --------------------------------------------------------------------------------------
 */

typedef struct tsr__checkpoint_layout {
    char *header;          /* the length, the JSON, and spaces up to a multiple of 8 */
    uint64_t header_bytes; /* of all of it */
    uint64_t size_bytes;   /* of the file */
    uint64_t *at_bytes;    /* [count]: where each entry starts in the file */
    int *order;            /* [count]: the entries in the order of the file */
} tsr__checkpoint_layout;

/* If `checksums` is true, the header has room for them, filled with zeros. */
tsr_status tsr__checkpoint_lay_out(const char *who, int count, const tsr_checkpoint_entry *entries,
                                   const char *const *metadata, bool checksums,
                                   tsr__checkpoint_layout *out) TSR_NODISCARD;
void tsr__checkpoint_layout_finish(tsr__checkpoint_layout *layout);

/* checksum.c ------------------------------------------------------------------------------------
 *
 * The metadata of a file hold one text of hexadecimal digits: first 8 for the CRC-32C of the
 * header, which extends to the first tensor's data and is taken with '0' in place of these 8
 * digits, and then 8 for the CRC-32C of each tensor's data, in the order in which the header names
 * the tensors.
 */
#define TSR__CHECKSUM_KEY "tessera.crc32c"

/* The checksum of a tensor, from ranges of it in any order. */
typedef struct tsr__checksum {
    uint64_t at_bytes, size_bytes; /* of the tensor in its file */
    uint32_t sum;                  /* of the earlier ranges */
    uint32_t range;                /* of the current range */
    uint64_t end;                  /* where the current range ends in the tensor */
} tsr__checksum;
void tsr__checksum_add(tsr__checksum *checksum, uint64_t at_bytes, uint64_t size, const void *data);
/* The state (base/crc32c.h) of the tensor with zeros outside these ranges. */
uint32_t tsr__checksum_state(const tsr__checksum *checksum);

/* Writes the checksums of the header and of the tensors into a header that has room for them.
 * `tensors` are in the order of the header. */
void tsr__checksums_write(char *header, uint64_t header_bytes, int count, const uint32_t *tensors);
/* Reads the checksums of the tensors from a header, which starts with its length, and verifies the
 * header's own. *out is an array, which the caller must free, or NULL if the header has none.
 * Errors: TSR_ERR_INVALID if the header was changed after it was written. */
tsr_status tsr__checksums_read(const char *header, uint64_t header_bytes, uint64_t count,
                               uint32_t **out) TSR_NODISCARD;

/* transfer.c ------------------------------------------------------------------------------------
 */

/* Copies `size` bytes between `data` and a file, at position `at`. */
typedef tsr_status (*tsr__checkpoint_move_fn)(void *file, uint64_t at_bytes, uint64_t size_bytes,
                                              void *data);

/* Calls `move` for each range of the file that this rank has of an entry, whose tensor starts at
 * `at_bytes` of the file. If `saving` is true, data go to the file, otherwise from it. */
tsr_status tsr__checkpoint_transfer(tsr_stream *stream, const tsr_checkpoint_entry *entry,
                                    uint64_t at_bytes, bool saving, tsr__checkpoint_move_fn move,
                                    void *file) TSR_NODISCARD;

/* training.c ------------------------------------------------------------------------------------
 */

/* Entries, and the names that were allocated for them. Must be zero at first. */
typedef struct tsr__training_list {
    tsr_checkpoint_entry *items;
    char **names; /* "optimizer.moment1.NAME", … */
    size_t count, capacity, name_count, name_capacity;
} tsr__training_list;
void tsr__training_list_finish(tsr__training_list *list);
/* Adds `entry`, whose name must remain valid as long as the list. */
tsr_status tsr__training_add(tsr__training_list *list,
                             const tsr_checkpoint_entry *entry) TSR_NODISCARD;
/* Adds an entry for the state of the parameter that `entry` describes: `tensor`, f32, with the name
 * "optimizer.WHAT.NAME". Adds nothing if `tensor` is NULL. */
tsr_status tsr__training_add_state(tsr__training_list *list, const tsr_checkpoint_entry *entry,
                                   const char *what, tsr_tensor *tensor) TSR_NODISCARD;

/* A file of parameters and, unless `model_only`, of state and the number of steps. */
typedef struct tsr__training_file {
    const char *who; /* begins the error texts */
    const char *path;
    tsr_comm *world;
    tsr_stream *stream;
    bool model_only;
    int64_t steps;
} tsr__training_file;
/* All ranks call these, each with the status of its preparations. If one failed, all fail.
 * `metadata` is the caller's, as in tsr_checkpoint_params. Loading sets file->steps. */
tsr_status tsr__training_save(const tsr__training_file *file, tsr_status prepared,
                              const tsr__training_list *list,
                              const char *const *metadata) TSR_NODISCARD;
tsr_status tsr__training_load(tsr__training_file *file, tsr_status prepared,
                              const tsr__training_list *list) TSR_NODISCARD;

#endif
