/* What a tuning says about a device: loaded when it is first needed, used by the chooser, changed
 * by tsr_tuning_set and stored by tsr_tuning_save.
 *
 * One file per kind of device and driver. It depends on the device's and the driver's names and
 * versions and on the kernels of this build, and on nothing that differs between two devices of one
 * kind, so that the ranks of a job that share a home directory compute the same bits. */
#ifndef TSR_GPU_MATMUL_TUNING_TUNED_H
#define TSR_GPU_MATMUL_TUNING_TUNED_H

#include "gpu/matmul/tuning/table.h"
#include "gpu/pipeline/cache_file.h"

typedef struct tsr__tuned tsr__tuned;

/* Reads the device's file if `read` and unless TESSERA_TUNING=0. A file that cannot be used is
 * logged. */
tsr_status tsr__tuned_create(const tsr_device *device, bool read, tsr__tuned **out);
void tsr__tuned_destroy(tsr__tuned *tuned);

/* The device's tuning, which the first call reads from its file. */
tsr_status tsr__tuned_of(tsr_device *device, tsr__tuned **out) TSR_NODISCARD;

/* Finds the tuned configuration of the problem's class and its number of parts of k (0: as usual).
 * False if there is none. `tuned` may be NULL. Any thread. */
bool tsr__tuned_find(tsr__tuned *tuned, const tsr__matmul_problem *problem,
                     const tsr__matmul_config **config, uint32_t *splits);

tsr_status tsr__tuned_set(tsr__tuned *tuned, const tsr__tuned_entry *entry);

/* Writes what was set since the device was opened over what the file has for those classes. */
tsr_status tsr__tuned_save(const tsr_device *device, tsr__tuned *tuned);

/* Classes that are not computed as usual. */
int tsr__tuned_count(tsr__tuned *tuned);

/* Whose file it is: what it depends on of a device, which need not be open. */
typedef struct tsr__tuned_owner {
    const tsr_device_info *info;
    tsr__storage storage;
} tsr__tuned_owner;

tsr__tuned_owner tsr__tuned_owner_of(const tsr_device *device);

/* Where the owner's file is; TSR_ERR_NOT_FOUND where there is no folder for it. */
tsr_status tsr__tuned_path(const tsr__tuned_owner *owner, char path[TSR__CACHE_PATH]);

/* What the file depends on but for the kernels: kind of device and driver. */
void tsr__tuned_identify(const tsr__tuned_owner *owner, tsr__cache_key *out);

/* What the file depends on. Hashes the kernels. */
void tsr__tuned_key(const tsr__tuned_owner *owner, tsr__cache_key *out);

#define TSR__TUNED_REASON 256
/* What the file says; empty where there is none, or none that can be used. Then `refused` says why,
 * and is "" otherwise. Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsr__tuned_read(const tsr__tuned_owner *owner, const char *path, tsr__tuned_table *out,
                           char refused[TSR__TUNED_REASON]);

/* Whether TESSERA_TUNING lets tunings be read. */
bool tsr__tuned_wanted(void);

extern const tsr__cache_kind tsr__tuned_file;

#endif
