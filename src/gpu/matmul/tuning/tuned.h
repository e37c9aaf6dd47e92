/* A device's tuning: loaded when it is first needed, used by the chooser, changed by tsr_tuning_set
 * and stored by tsr_tuning_save.
 *
 * There is one file per kind of device and driver. Its identity consists of the names and versions
 * of device and driver and of the kernels of this build. It contains nothing that differs between
 * two devices of one kind, so that the ranks of a job that share a home directory compute the same
 * bits. */
#ifndef TSR_GPU_MATMUL_TUNING_TUNED_H
#define TSR_GPU_MATMUL_TUNING_TUNED_H

#include "gpu/matmul/tuning/table.h"
#include "gpu/pipeline/cache_file.h"

typedef struct tsr__tuned tsr__tuned;

/* Reads the device's file if `read` is set and TESSERA_TUNING is not 0. Logs a file that cannot be
 * used. */
tsr_status tsr__tuned_create(const tsr_device *device, bool read, tsr__tuned **out);
void tsr__tuned_destroy(tsr__tuned *tuned);

/* The device's tuning, which the first call reads from its file. */
tsr_status tsr__tuned_of(tsr_device *device, tsr__tuned **out) TSR_NODISCARD;

/* Finds the tuned configuration of the problem's class and its number of parts of k (0: as usual).
 * Returns false if there is none. `tuned` may be NULL. Any thread. */
bool tsr__tuned_find(tsr__tuned *tuned, const tsr__matmul_problem *problem,
                     const tsr__matmul_config **config, uint32_t *splits);

tsr_status tsr__tuned_set(tsr__tuned *tuned, const tsr__tuned_entry *entry);

/* Stores the entries that were set since the device was opened; the file keeps its other classes.
 */
tsr_status tsr__tuned_save(const tsr_device *device, tsr__tuned *tuned);

/* The number of classes that are not computed as usual. */
int tsr__tuned_count(tsr__tuned *tuned);

/* The device that a file belongs to; it need not be open. */
typedef struct tsr__tuned_owner {
    const tsr_device_info *info;
    tsr__storage storage;
} tsr__tuned_owner;

tsr__tuned_owner tsr__tuned_owner_of(const tsr_device *device);

/* Writes the path of the owner's file. Returns TSR_ERR_NOT_FOUND if there is no cache folder. */
tsr_status tsr__tuned_path(const tsr__tuned_owner *owner, char path[TSR__CACHE_PATH]);

/* The part of the file's key that identifies the kind of device and the driver. */
void tsr__tuned_identify(const tsr__tuned_owner *owner, tsr__cache_key *out);

/* The file's whole key, with a hash of the kernels. */
void tsr__tuned_key(const tsr__tuned_owner *owner, tsr__cache_key *out);

#define TSR__TUNED_REASON 256
/* Reads the file into `out`, which is empty if there is no file or it cannot be used. `refused`
 * gives the reason why it cannot be used, or is "". Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsr__tuned_read(const tsr__tuned_owner *owner, const char *path, tsr__tuned_table *out,
                           char refused[TSR__TUNED_REASON]);

/* False if TESSERA_TUNING is 0. */
bool tsr__tuned_wanted(void);

extern const tsr__cache_kind tsr__tuned_file;

#endif
