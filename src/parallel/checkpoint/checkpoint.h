/* The internal functions of checkpoints.
 *
 *     entry.c     checks the caller's entries
 *     agree.c     what ranks exchange: failures, checksums, and which rank writes which region
 *     cover.c     checks that regions make up a full tensor
 *     match.c     finds the tensors of a file that entries read
 *     merge.c     merges the entries of the stages of a pipeline
 *     layout.c    the header of a file, and the positions of its tensors
 *     checksum.c  checksums of tensors that ranks write or read region by region
 *     transfer.c  copies between a rank's region and the byte ranges of the file that hold it
 *     output.c    a file that is written under a temporary name (output.h)
 *     save.c      saves a checkpoint
 *     load.c      loads a checkpoint
 *     part*.c     checkpoints in parts (parts.h)
 *     metadata.c  reads metadata from the header of a file
 *     lookup.c    tsr_checkpoint_metadata: looks up one metadata string
 *     training.c  files with optimizer state, for FSDP models and for optimizers */
#ifndef TSR_PARALLEL_CHECKPOINT_H
#define TSR_PARALLEL_CHECKPOINT_H

#include "base/error.h"
#include "shard/formats/readers.h"
#include "tessera/checkpoint.h"

/* The timeout for operations in which ranks wait for the disks of other ranks: 10 minutes. */
#define TSR__CHECKPOINT_PATIENCE_NS UINT64_C(600000000000)

/* entry.c ------------------------------------------------------------------------------------ */

/* The block of an entry: the range offset … offset + length − 1 of a tensor along shard_dim, or the
 * full tensor. The block consists of `outer` rows of `row` contiguous elements each. A row of the
 * full tensor has `whole_row` elements, and the block's row starts at element `start` of that row.
 * The entry's region is a range of the block's elements in row-major order (tsr__region). */
typedef struct tsr__checkpoint_rows {
    uint64_t outer, row, whole_row, start;
} tsr__checkpoint_rows;

/* Makes all checks of the caller's arguments that need no other rank. `who` is the beginning of the
 * error texts. If `saving` is false, the memory of the entries must be writable. */
tsr_status tsr__checkpoint_check(const char *who, const char *path, const tsr_stream *stream,
                                 bool saving, int count,
                                 const tsr_checkpoint_entry *entries) TSR_NODISCARD;
/* Checks an entry's shape, and that its elements are in the tensor. */
tsr_status tsr__checkpoint_check_region(const char *who,
                                        const tsr_checkpoint_entry *entry) TSR_NODISCARD;
/* Returns the block of an entry, as rows. The entry must have been checked. */
tsr__checkpoint_rows tsr__checkpoint_rows_of(const tsr_checkpoint_entry *entry);
/* These two functions return the size of an element in bytes and the name of a dtype. They support
 * f64 too, which tensors do not. */
static inline uint64_t tsr__checkpoint_width(tsr_dtype dtype)
{
    return dtype == TSR_F64 ? 8 : tsr_dtype_size(dtype);
}
static inline const char *tsr__checkpoint_dtype(tsr_dtype dtype)
{
    return dtype == TSR_F64 ? "f64" : tsr_dtype_name(dtype);
}
/* Returns the number of elements of the full tensor. */
uint64_t tsr__checkpoint_elements(const tsr_checkpoint_entry *entry);
/* Gets the size of the divided dimension of the full tensor, and the offset and length of the
 * entry's block along this dimension. */
void tsr__checkpoint_along(const tsr_checkpoint_entry *entry, uint64_t *size, uint64_t *offset,
                           uint64_t *length);

/* Replaces the caller's entries by a copy of the library's size, which the caller must free with
 * tsr__free(*taken). A wrong count or NULL is left to tsr__checkpoint_check. Errors:
 * TSR_ERR_INVALID, TSR_ERR_NO_MEMORY. */
tsr_status tsr__checkpoint_take(int count, const tsr_checkpoint_entry **entries,
                                void **taken) TSR_NODISCARD;

/* Sorts entries by the bytes of their names. *out is the order as an array of indices, which the
 * caller must free. */
tsr_status tsr__checkpoint_sort(int count, const tsr_checkpoint_entry *entries,
                                int **out) TSR_NODISCARD;

/* match.c ------------------------------------------------------------------------------------ */

/* Finds the parameter of each entry, and stores it in found[count]. Checks that shape and dtype are
 * the same, and if `strict` is true, that an entry reads each parameter. */
tsr_status tsr__checkpoint_match(const char *who, const char *path, const tsr__params *params,
                                 int count, const tsr_checkpoint_entry *entries, bool strict,
                                 const tsr_shard_param **found) TSR_NODISCARD;

/* cover.c ------------------------------------------------------------------------------------ */

/* The elements of a tensor that an entry has: of the block offset … offset + length − 1 along
 * dimension `dim`, elements first … first + count − 1 in row-major order. */
typedef struct tsr__region {
    uint64_t dim, offset, length, first, count;
} tsr__region;
/* Returns the region of an entry. A shard_dim of -1 gives all of dimension 0. */
tsr__region tsr__region_of(const tsr_checkpoint_entry *entry);

/* A region, and the number of the rank or part that has it. */
typedef struct tsr__owned {
    tsr__region of;
    int owner;
} tsr__owned;
/* How to check a cover. The texts are words of the errors: "WHO: 'x': the UNITs of OWNER 1 and
 * OWNER 2 overlap". */
typedef struct tsr__cover {
    const char *who, *owner, *unit;
    bool doubles; /* allow several owners of one region, which then counts for the lowest */
} tsr__cover;
/* Checks that the regions of list[count], none of them empty, make up the full tensor that `entry`
 * describes. Sorts the list. Unless the regions have different dims, sets *mine to whether a region
 * of the owner `self` counts, even if the check fails. */
tsr_status tsr__cover_check(const tsr__cover *cover, const tsr_checkpoint_entry *entry,
                            tsr__owned *list, int count, int self, bool *mine) TSR_NODISCARD;

/* agree.c ------------------------------------------------------------------------------------ */

/* All ranks must call this with their status. If any ranks have failed, all ranks return the
 * failure of the lowest failed rank, with its error text and rank number. `comm` may be NULL. */
tsr_status tsr__checkpoint_agree(tsr_comm *comm, const char *who, tsr_status mine) TSR_NODISCARD;

/* Checks that `hash`, without its lowest bit, is the same on all ranks. `what` is the start of the
 * error text, such as "the plan is". The rest of the text is " not the same as on rank 0". */
tsr_status tsr__checkpoint_same(tsr_comm *comm, const char *who, const char *what,
                                uint64_t hash) TSR_NODISCARD;

/* Checks that all ranks have the same entries, except for their regions and memory. */
tsr_status tsr__checkpoint_same_entries(tsr_comm *comm, const char *who, int count,
                                        const tsr_checkpoint_entry *entries) TSR_NODISCARD;

/* Checks that the regions of all ranks together make up the full tensor of each entry. Sets
 * mine[count]: for each entry, whether this rank writes its own region. If several ranks have the
 * same region, the lowest of these ranks writes it. */
tsr_status tsr__checkpoint_divide(tsr_comm *comm, const char *who, int count,
                                  const tsr_checkpoint_entry *entries, bool *mine) TSR_NODISCARD;

/* As tsr__checkpoint_divide, but for reading, where the regions need not make up the full tensor.
 * Sets complete[count]: for each entry, whether the regions of all ranks make up the full tensor.
 * Sets mine[count]: whether this rank's region counts for the checksum. Every rank must pass all
 * tensors of the file in the same order, with a count of 0 for the tensors that the rank does not
 * read. */
tsr_status tsr__checkpoint_cover(tsr_comm *comm, const char *who, int count,
                                 const tsr_checkpoint_entry *entries, bool *mine,
                                 bool *complete) TSR_NODISCARD;

/* Sets states[count] to the exclusive or of the states of all ranks. */
tsr_status tsr__checkpoint_combine(tsr_comm *comm, const char *who, int count,
                                   uint32_t *states) TSR_NODISCARD;

/* merge.c ------------------------------------------------------------------------------------ */

typedef struct tsr__checkpoint_merged {
    tsr_checkpoint_entry *entries;
    int count;
    char *names;
} tsr__checkpoint_merged;
/* Merges the lists of the ranks of `stages`, all of which must call this function: first the
 * entries of rank 0, then the entries of rank 1 that rank 0 does not have, and so on. For an entry
 * that only other ranks have, the merged list of this rank has one without elements. The entries
 * must have been checked, and must remain valid. On success *out must be finished. */
tsr_status tsr__checkpoint_merge(tsr_comm *stages, const char *who, int count,
                                 const tsr_checkpoint_entry *entries,
                                 tsr__checkpoint_merged *out) TSR_NODISCARD;
void tsr__checkpoint_merged_finish(tsr__checkpoint_merged *merged);

/* layout.c ----------------------------------------------------------------------------------- */

typedef struct tsr__checkpoint_layout {
    /* 8 bytes that hold the length of the rest; the JSON; spaces up to a multiple of 8 bytes */
    char *header;
    uint64_t header_bytes; /* the size of `header` */
    uint64_t size_bytes;   /* the size of the file */
    uint64_t *at_bytes;    /* [count]: the position of each entry's data in the file */
    int *order;            /* [count]: the indices of the entries, in the order of the file */
} tsr__checkpoint_layout;

/* Determines the layout of a file. If `checksums` is true, the header reserves room for checksums,
 * filled with zeros. */
tsr_status tsr__checkpoint_lay_out(const char *who, int count, const tsr_checkpoint_entry *entries,
                                   const char *const *metadata, bool checksums,
                                   tsr__checkpoint_layout *out) TSR_NODISCARD;
void tsr__checkpoint_layout_finish(tsr__checkpoint_layout *layout);

/* checksum.c ------------------------------------------------------------------------------------
 *
 * The metadata of a file contain one string of hexadecimal digits. The first 8 digits of the string
 * are the CRC-32C of the header, up to the first tensor's data. This checksum is computed with '0'
 * in place of these 8 digits. Then each tensor has 8 digits for the CRC-32C of its data, in the
 * order in which the header names the tensors. */
#define TSR__CHECKSUM_KEY "tessera.crc32c"

/* The checksum of a tensor, computed from ranges of the tensor in any order. */
typedef struct tsr__checksum {
    uint64_t at_bytes, size_bytes; /* the tensor's position and size in its file */
    uint32_t sum;                  /* the state of all ranges before the current one */
    uint32_t range;                /* the state of the current range */
    uint64_t end;                  /* the position in the tensor where the current range ends */
} tsr__checksum;
void tsr__checksum_add(tsr__checksum *checksum, uint64_t at_bytes, uint64_t size, const void *data);
/* Returns the checksum state (see base/crc32c.h) of the tensor, in which all elements outside of
 * the added ranges count as zeros. */
uint32_t tsr__checksum_state(const tsr__checksum *checksum);

/* Writes the checksums of the header and of the tensors into a header that has room for them.
 * `tensors` must be in the order of the header. */
void tsr__checksums_write(char *header, uint64_t header_bytes, int count, const uint32_t *tensors);
/* Writes the header again, now with the checksums, and synchronises the file. states[count] are the
 * states of the tensors' checksums, in the order of the entries. */
struct tsr__checkpoint_output;
tsr_status tsr__checksums_put(struct tsr__checkpoint_output *file, int count,
                              const tsr_checkpoint_entry *entries,
                              const tsr__checkpoint_layout *layout,
                              const uint32_t *states) TSR_NODISCARD;
/* Reads the checksums of the tensors from a header, and verifies the header's own checksum.
 * `header` begins with the length. *out is an array that the caller must free, or NULL if the
 * header has no checksums. Errors: TSR_ERR_INVALID if the header was changed after it was
 * written. */
tsr_status tsr__checksums_read(const char *header, uint64_t header_bytes, uint64_t count,
                               uint32_t **out) TSR_NODISCARD;

/* transfer.c --------------------------------------------------------------------------------- */

/* Copies `size_bytes` bytes between `data` and position `at_bytes` of a file. */
typedef tsr_status (*tsr__checkpoint_move_fn)(void *file, uint64_t at_bytes, uint64_t size_bytes,
                                              void *data);

/* Calls `move` for each range of the file that belongs to this rank's region of an entry. The
 * tensor of the entry starts at `at_bytes` of the file. If `saving` is true, data go to the file,
 * otherwise they come from the file. */
tsr_status tsr__checkpoint_transfer(tsr_stream *stream, const tsr_checkpoint_entry *entry,
                                    uint64_t at_bytes, bool saving, tsr__checkpoint_move_fn move,
                                    void *file) TSR_NODISCARD;

/* metadata.c --------------------------------------------------------------------------------- */

/* The metadata of a file: a key, its text, the next key, … {0} is an empty list. */
typedef struct tsr__metadata {
    char **texts; /* [2 * count] */
    size_t count, capacity;
} tsr__metadata;
/* Reads the pairs of a header, which begins with its length and has been checked. `wanted` is the
 * only key to keep; NULL keeps all. On failure, too, the list must be finished. */
tsr_status tsr__metadata_read(const char *header, uint64_t header_bytes, const char *wanted,
                              tsr__metadata *out) TSR_NODISCARD;
/* Returns the text of a key, or NULL. */
const char *tsr__metadata_find(const tsr__metadata *metadata, const char *key);
void tsr__metadata_finish(tsr__metadata *metadata);
/* Copies `found`, the text of `key`, to the caller's text[size]. Errors: TSR_ERR_NOT_FOUND if
 * `found` is NULL, TSR_ERR_INVALID if it does not fit. */
tsr_status tsr__metadata_give(const char *who, const char *path, const char *key, const char *found,
                              size_t size, char *text) TSR_NODISCARD;

/* training.c --------------------------------------------------------------------------------- */

/* A list of entries, and of the names that were allocated for them. Must be initialised with
 * zeros. */
typedef struct tsr__training_list {
    tsr_checkpoint_entry *items;
    char **names; /* [name_count]: "optimizer.moment1.NAME", … */
    size_t count, capacity, name_count, name_capacity;
} tsr__training_list;
void tsr__training_list_finish(tsr__training_list *list);
/* Adds `entry`. Its name must stay valid as long as the list. */
tsr_status tsr__training_add(tsr__training_list *list,
                             const tsr_checkpoint_entry *entry) TSR_NODISCARD;
/* Adds an entry for optimizer state. `entry` describes the parameter, and `tensor` (f32) is its
 * state. The new entry has the name "optimizer.WHAT.NAME". Adds nothing if `tensor` is NULL. */
tsr_status tsr__training_add_state(tsr__training_list *list, const tsr_checkpoint_entry *entry,
                                   const char *what, tsr_tensor *tensor) TSR_NODISCARD;

/* A file of parameters. Unless `model_only` is true, it also contains the optimizer's state and the
 * number of steps. */
typedef struct tsr__training_file {
    const char *who; /* the beginning of the error texts */
    const char *path;
    tsr_comm *world;
    tsr_comm *stages; /* as in tsr_checkpoint_params, for saving only */
    tsr_stream *stream;
    bool model_only;
    bool parts; /* as in tsr_checkpoint_params; the same on all ranks */
    int64_t steps;
} tsr__training_file;
/* All ranks must call these functions, each with the status of its preparations. If one rank has
 * failed, all fail. `metadata` is the caller's metadata, as in tsr_checkpoint_params. Loading sets
 * file->steps. */
tsr_status tsr__training_save(const tsr__training_file *file, tsr_status prepared,
                              const tsr__training_list *list,
                              const char *const *metadata) TSR_NODISCARD;
tsr_status tsr__training_load(tsr__training_file *file, tsr_status prepared,
                              const tsr__training_list *list) TSR_NODISCARD;

#endif
