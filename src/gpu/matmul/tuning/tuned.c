#include "gpu/matmul/tuning/tuned.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "gpu/matmul/tuning/contributed.h"
#include "gpu/matmul/tuning/shape_class.h"

#define LOCK_SECONDS 5 /* more than enough: storing takes a few milliseconds */

struct tsr__tuned {
    pthread_mutex_t lock;
    atomic_bool any;          /* false if the table is empty; the lock is then not needed */
    tsr__tuned_table table;   /* the entries that the chooser uses */
    tsr__tuned_table changes; /* the entries that are not in the file yet */
};

const tsr__cache_kind tsr__tuned_file = {
    .what = "tuning",
    .prefix = "tuning",
    .magic = UINT64_C(0x31656e7574637274), /* "trctune1" */
    .max_bytes = UINT64_C(1) << 20,
};

/* The file's identity -------------------------------------------------------------------------- */

static uint64_t hash_text(uint64_t hash, const char *text)
{
    return tsr__hash(hash, text, strlen(text) + 1);
}

/* The identity contains no UUIDs. They differ between two devices of one kind, and they change if a
 * card moves to another slot or if a distribution rebuilds the same driver. */
void tsr__tuned_identify(const tsr__tuned_owner *owner, tsr__cache_key *out)
{
    const tsr_device_info *info = owner->info;
    uint64_t names = hash_text(TSR__HASH_START, info->name);
    names = hash_text(names, info->driver_name);
    names = hash_text(names, info->driver_info);
    names = tsr__hash(names, &info->subgroup_size, sizeof info->subgroup_size);
    memset(out, 0, sizeof *out);
    memcpy(out->cache_uuid, &names, sizeof names);
    out->vendor_id = info->vendor_id;
    out->device_id = info->device_id;
    out->driver_version = info->driver_version;
    out->storage = (uint32_t)owner->storage;
}

/* Hashes the shaders of products and the table of configurations, because a tuning is valid only
 * for the kernels that it measured. */
static uint64_t hash_kernels(tsr__storage storage)
{
    uint64_t hash = tsr__cache_hash_shaders(storage, "matmul");
    const tsr__matmul_config *c;
    for (int i = 0; (c = tsr__matmul_config_at(i)) != NULL; i++) {
        const uint32_t numbers[] = {c->threads, c->bm, c->bn, c->bk, c->tm, c->tn};
        hash = tsr__hash(hash_text(hash, c->name), numbers, sizeof numbers);
    }
    return hash;
}

tsr__tuned_owner tsr__tuned_owner_of(const tsr_device *device)
{
    return (tsr__tuned_owner){.info = &device->info, .storage = device->storage};
}

void tsr__tuned_key(const tsr__tuned_owner *owner, tsr__cache_key *out)
{
    tsr__tuned_identify(owner, out);
    out->shader_hash = hash_kernels(owner->storage);
}

/* The file's name does not depend on the kernels, so that a build with other kernels replaces
 * the file instead of leaving it behind. */
tsr_status tsr__tuned_path(const tsr__tuned_owner *owner, char path[TSR__CACHE_PATH])
{
    tsr__cache_key identity;
    tsr__tuned_identify(owner, &identity);
    if (!tsr__cache_path(&tsr__tuned_file, tsr__hash(TSR__HASH_START, &identity, sizeof identity),
                         path))
        return tsr__fail(TSR_ERR_NOT_FOUND,
                         "tuning: there is no cache folder; set XDG_CACHE_HOME or HOME");
    return TSR_OK;
}

/* Reading -------------------------------------------------------------------------------------- */

tsr_status tsr__tuned_read(const tsr__tuned_owner *owner, const char *path, tsr__tuned_table *out,
                           char refused[TSR__TUNED_REASON])
{
    tsr__cache_key key;
    void *data;
    size_t bytes;
    const char *reason;
    *out = (tsr__tuned_table){0};
    refused[0] = '\0';
    /* Most devices have no file. In that case, return before the kernels are hashed. */
    if (access(path, R_OK) != 0)
        return TSR_OK;
    tsr__tuned_key(owner, &key);
    TSR__TRY(tsr__cache_inspect(&tsr__tuned_file, path, &key, &data, &bytes, &reason));
    if (reason)
        snprintf(refused, TSR__TUNED_REASON, "it %s", reason);
    if (!data)
        return TSR_OK;
    tsr_status status = tsr__tuned_table_decode(data, bytes, out);
    tsr__free(data);
    if (status == TSR_ERR_NO_MEMORY)
        return status;
    if (status != TSR_OK)
        snprintf(refused, TSR__TUNED_REASON, "%s", tsr_last_error());
    return TSR_OK;
}

static tsr_status load(const tsr_device *device, tsr__tuned_table *out)
{
    char path[TSR__CACHE_PATH], refused[TSR__TUNED_REASON];
    tsr__tuned_owner owner = tsr__tuned_owner_of(device);
    *out = (tsr__tuned_table){0};
    if (tsr__tuned_path(&owner, path) != TSR_OK)
        return TSR_OK;
    TSR__TRY(tsr__tuned_read(&owner, path, out, refused));
    if (refused[0] != '\0')
        tsr__log(TSR_LOG_WARNING, "tuning %s was not used: %s", path, refused);
    else if (out->count > 0)
        tsr__log(TSR_LOG_INFO, "%s: %zu classes of products are tuned", path, out->count);
    return TSR_OK;
}

/* Collects the choices that this build has for the chip, and those of the file, which take
 * precedence. */
static tsr_status collect(const tsr_device *device, tsr__tuned_table *out)
{
    const tsr__matmul_device chooser_device = {
        .vendor_id = device->info.vendor_id,
        .device_id = device->info.device_id,
        .subgroup_size_min = device->info.subgroup_size_min,
    };
    tsr__tuned_table stored;

    TSR__TRY(load(device, &stored));
    tsr_status status = TSR_OK;
    if (!device->traits.not_a_chip)
        status = tsr__contributed_add(tsr__chip_of(&chooser_device), out);
    if (status == TSR_OK)
        status = tsr__tuned_table_merge(out, &stored);
    tsr__tuned_table_finish(&stored);
    return status;
}

bool tsr__tuned_wanted(void)
{
    const char *value = getenv("TESSERA_TUNING");
    return !value || strcmp(value, "0") != 0;
}

tsr_status tsr__tuned_create(const tsr_device *device, bool read, tsr__tuned **out)
{
    tsr__tuned *tuned = tsr__calloc(1, sizeof *tuned);
    if (!tuned)
        return TSR_ERR_NO_MEMORY;
    pthread_mutex_init(&tuned->lock, NULL);
    /* Running out of memory must be an error: without the tuning, products would have other
     * bits. */
    tsr_status status = read && tsr__tuned_wanted() ? collect(device, &tuned->table) : TSR_OK;
    if (status != TSR_OK) {
        tsr__tuned_destroy(tuned);
        return status;
    }
    atomic_init(&tuned->any, tuned->table.count > 0);
    *out = tuned;
    return TSR_OK;
}

void tsr__tuned_destroy(tsr__tuned *tuned)
{
    if (!tuned)
        return;
    tsr__tuned_table_finish(&tuned->table);
    tsr__tuned_table_finish(&tuned->changes);
    pthread_mutex_destroy(&tuned->lock);
    tsr__free(tuned);
}

static tsr_status create_tuned(tsr_device *device, void **out)
{
    tsr__tuned *tuned;
    TSR__TRY(tsr__tuned_create(device, device->disk_cache, &tuned));
    *out = tuned;
    return TSR_OK;
}

static void destroy_tuned(tsr_device *device, void *tuned)
{
    (void)device;
    tsr__tuned_destroy(tuned);
}

tsr_status tsr__tuned_of(tsr_device *device, tsr__tuned **out)
{
    static const tsr__attachment_kind kind = {.create = create_tuned, .destroy = destroy_tuned};
    void *tuned;
    TSR__TRY(tsr__device_attach(device, &kind, &tuned));
    *out = tuned;
    return TSR_OK;
}

/* In effect ------------------------------------------------------------------------------------ */

bool tsr__tuned_find(tsr__tuned *tuned, const tsr__matmul_problem *problem,
                     const tsr__matmul_config **config, uint32_t *splits)
{
    tsr__shape_class shape_class;
    if (!tuned || !atomic_load_explicit(&tuned->any, memory_order_acquire) ||
        !tsr__shape_class_of(problem, &shape_class))
        return false;
    uint64_t wanted_class = tsr__shape_class_pack(&shape_class);
    pthread_mutex_lock(&tuned->lock);
    const tsr__tuned_entry *entry = tsr__tuned_table_find(&tuned->table, wanted_class);
    bool found = entry && entry->config;
    if (found) {
        *config = entry->config;
        *splits = entry->splits;
    }
    pthread_mutex_unlock(&tuned->lock);
    return found;
}

tsr_status tsr__tuned_set(tsr__tuned *tuned, const tsr__tuned_entry *entry)
{
    pthread_mutex_lock(&tuned->lock);
    tsr_status status = tsr__tuned_table_set(&tuned->changes, entry);
    if (status == TSR_OK)
        status = tsr__tuned_table_set(&tuned->table, entry);
    atomic_store_explicit(&tuned->any, tuned->table.count > 0, memory_order_release);
    pthread_mutex_unlock(&tuned->lock);
    return status;
}

int tsr__tuned_count(tsr__tuned *tuned)
{
    pthread_mutex_lock(&tuned->lock);
    int count = tsr__tuned_table_choices(&tuned->table);
    pthread_mutex_unlock(&tuned->lock);
    return count;
}

/* Writing -------------------------------------------------------------------------------------- */

static tsr_status store(const tsr_device *device, const tsr__tuned_table *table)
{
    char path[TSR__CACHE_PATH];
    tsr__cache_key key;
    void *data;
    size_t bytes;
    tsr__tuned_owner owner = tsr__tuned_owner_of(device);
    TSR__TRY(tsr__tuned_path(&owner, path));
    TSR__TRY(tsr__tuned_table_encode(table, &data, &bytes));
    tsr__tuned_key(&owner, &key);
    int reason = tsr__cache_store(&tsr__tuned_file, path, &key, data, bytes);
    tsr__free(data);
    if (reason != 0)
        return tsr__fail(TSR_ERR_IO, "tuning: %s cannot be written: %s", path, strerror(reason));
    return TSR_OK;
}

/* Reads the file again before writing it. Another process may have stored more entries, or this
 * process has not read it because of TESSERA_TUNING=0. */
static tsr_status store_changes(const tsr_device *device, tsr__tuned *tuned)
{
    tsr__tuned_table stored;
    pthread_mutex_lock(&tuned->lock);
    tsr_status status = load(device, &stored);
    if (status == TSR_OK)
        status = tsr__tuned_table_merge(&stored, &tuned->changes);
    if (status == TSR_OK)
        status = store(device, &stored);
    if (status == TSR_OK)
        tsr__tuned_table_finish(&tuned->changes);
    tsr__tuned_table_finish(&stored);
    pthread_mutex_unlock(&tuned->lock);
    return status;
}

tsr_status tsr__tuned_save(const tsr_device *device, tsr__tuned *tuned)
{
    char path[TSR__CACHE_PATH];
    int lock;
    tsr__tuned_owner owner = tsr__tuned_owner_of(device);
    TSR__TRY(tsr__tuned_path(&owner, path));
    if (!tsr__cache_lock(path, LOCK_SECONDS * TSR__SECOND, &lock))
        return tsr__fail(TSR_ERR_IO, "tuning: %s cannot be written: %s.lock has been held for %d s",
                         path, path, LOCK_SECONDS);
    tsr_status status = store_changes(device, tuned);
    tsr__cache_unlock(lock);
    return status;
}
