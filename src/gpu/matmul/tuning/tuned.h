/* A device's tuning. It is loaded when it is first needed, used by the chooser, changed by
 * tsr__tuning_set and stored by tsr__tuning_save.
 *
 * There is one file for each kind of device and driver. It is identified by the names and versions
 * of the device, of the driver and of the kernels of this build. Nothing in this identity differs
 * between two devices of one kind. Therefore the ranks of a job that share a home directory compute
 * the same bits. */
#ifndef TSR_GPU_MATMUL_TUNING_TUNED_H
#define TSR_GPU_MATMUL_TUNING_TUNED_H

#include "gpu/matmul/tuning/table.h"
#include "gpu/pipeline/cache_file.h"

typedef struct tsr__tuned tsr__tuned;

/* Creates the tuning. Reads the device's file if `read` is set and TESSERA_TUNING is not 0. Logs
 * why a file cannot be used. */
tsr_status tsr__tuned_create(const tsr_device *device, bool read, tsr__tuned **out);
void tsr__tuned_destroy(tsr__tuned *tuned);

/* Returns the device's tuning. The first call reads the device's file. */
tsr_status tsr__tuned_of(tsr_device *device, tsr__tuned **out) TSR_NODISCARD;

/* Finds the entry for the problem's class, and gives its configuration and the number of ranges
 * into which k is split (0: the usual number). Returns false if there is no entry. `tuned` may
 * be NULL. May be called from any thread. */
bool tsr__tuned_find(tsr__tuned *tuned, const tsr__matmul_problem *problem,
                     const tsr__matmul_config **config, uint32_t *splits);

tsr_status tsr__tuned_set(tsr__tuned *tuned, const tsr__tuned_entry *entry);

/* Stores the entries that were set since the device was opened. The file keeps the entries of other
 * classes. */
tsr_status tsr__tuned_save(const tsr_device *device, tsr__tuned *tuned);

/* The number of classes for which the tuning replaces the usual choice. */
int tsr__tuned_count(tsr__tuned *tuned);

/* The device to which a file belongs. It need not be open. */
typedef struct tsr__tuned_owner {
    const tsr_device_info *info;
    tsr__storage storage;
} tsr__tuned_owner;

tsr__tuned_owner tsr__tuned_owner_of(const tsr_device *device);

/* Writes the path of the owner's file. Returns TSR_ERR_NOT_FOUND if there is no cache folder. */
tsr_status tsr__tuned_path(const tsr__tuned_owner *owner, char path[TSR__CACHE_PATH]);

/* Writes the part of the file's key that identifies the kind of device and the driver. */
void tsr__tuned_identify(const tsr__tuned_owner *owner, tsr__cache_key *out);

/* Writes the file's complete key, which includes a hash of the kernels. */
void tsr__tuned_key(const tsr__tuned_owner *owner, tsr__cache_key *out);

#define TSR__TUNED_REASON 256
/* Reads the file into `out`. If there is no file or it cannot be used, `out` is empty. `refused`
 * gets the reason why the file cannot be used, otherwise "". Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsr__tuned_read(const tsr__tuned_owner *owner, const char *path, tsr__tuned_table *out,
                           char refused[TSR__TUNED_REASON]);

/* False if TESSERA_TUNING is 0. */
bool tsr__tuned_wanted(void);

extern const tsr__cache_kind tsr__tuned_file;

#endif
