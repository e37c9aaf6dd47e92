#include "gpu/self_test/results.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "gpu/device/device.h"

/* A result in the file. It has no padding. */
typedef struct file_entry {
    char kernel[TSR__SELF_TEST_KERNEL_SIZE];
    uint32_t dtype, right;
} file_entry;

static const tsr__cache_kind file_kind = {
    .what = "self-test",
    .prefix = "selftest",
    .magic = UINT64_C(0x3174736574637274), /* "trctest1" */
    .max_bytes = TSR__MAX_SELF_TESTS * sizeof(file_entry),
};

static uint64_t hash_text(uint64_t hash, const char *text)
{
    return tsr__hash(hash, text, strlen(text) + 1);
}

/* Returns the key of the file with results. Results hold for all devices of the same model, driver
 * and build, so the key contains no UUIDs. */
static tsr__cache_key identify(const tsr_device_info *info, tsr__storage storage)
{
    tsr__cache_key key;
    uint64_t names = hash_text(TSR__HASH_START, info->name);
    names = hash_text(names, info->driver_name);
    names = hash_text(names, info->driver_info);
    memset(&key, 0, sizeof key);
    memcpy(key.cache_uuid, &names, sizeof names);
    key.vendor_id = info->vendor_id;
    key.device_id = info->device_id;
    key.driver_version = info->driver_version;
    key.storage = (uint32_t)storage;
    return key;
}

/* Writes the key and the path of the file. The path does not depend on the kernels, so that another
 * build of the library replaces the file instead of adding one. */
static bool locate(const tsr_device_info *info, tsr__storage storage, tsr__cache_key *key,
                   char path[TSR__CACHE_PATH])
{
    *key = identify(info, storage);
    uint64_t name = tsr__hash(TSR__HASH_START, key, sizeof *key);
    key->shader_hash = tsr__cache_hash_shaders(storage, "");
    return tsr__cache_path(&file_kind, name, path);
}

/* Adds the entry to the results, unless it has values that encode() never writes. */
static void decode(const file_entry *entry, tsr__self_tests *out)
{
    tsr__self_test result = {.dtype = (tsr_dtype)entry->dtype, .right = entry->right == 1};

    if (memchr(entry->kernel, '\0', sizeof entry->kernel) == NULL || entry->right > 1 ||
        entry->dtype > UINT8_MAX)
        return;
    memcpy(result.kernel, entry->kernel, sizeof result.kernel);
    tsr__results_set(out, &result);
}

static size_t encode(const tsr__self_tests *results, file_entry out[TSR__MAX_SELF_TESTS])
{
    for (int i = 0; i < results->count; i++) {
        const tsr__self_test *result = &results->tests[i];
        out[i] = (file_entry){.dtype = (uint32_t)result->dtype, .right = result->right};
        memcpy(out[i].kernel, result->kernel, sizeof out[i].kernel);
    }
    return (size_t)results->count * sizeof *out;
}

tsr_status tsr__results_read(const tsr_device_info *info, tsr__storage storage,
                             tsr__self_tests *out)
{
    char path[TSR__CACHE_PATH];
    tsr__cache_key key;
    void *data = NULL;
    size_t bytes = 0;
    const char *refused;

    out->count = 0;
    if (!locate(info, storage, &key, path))
        return TSR_OK;
    TSR__TRY(tsr__cache_inspect(&file_kind, path, &key, &data, &bytes, &refused));
    for (size_t i = 0; i < bytes / sizeof(file_entry); i++) {
        file_entry entry;
        memcpy(&entry, (const char *)data + i * sizeof entry, sizeof entry);
        decode(&entry, out);
    }
    tsr__free(data);
    return TSR_OK;
}

tsr__self_test *tsr__results_find(tsr__self_tests *results, const char *kernel, tsr_dtype dtype)
{
    for (int i = 0; i < results->count; i++)
        if (results->tests[i].dtype == dtype && strcmp(results->tests[i].kernel, kernel) == 0)
            return &results->tests[i];
    return NULL;
}

void tsr__results_set(tsr__self_tests *results, const tsr__self_test *result)
{
    tsr__self_test *known = tsr__results_find(results, result->kernel, result->dtype);

    if (known)
        *known = *result;
    else if (results->count < TSR__MAX_SELF_TESTS)
        results->tests[results->count++] = *result;
}

void tsr__results_store(const tsr_device_info *info, tsr__storage storage,
                        const tsr__self_tests *results)
{
    char path[TSR__CACHE_PATH];
    tsr__cache_key key;
    tsr__self_tests stored;
    file_entry entries[TSR__MAX_SELF_TESTS];
    int lock;

    if (!locate(info, storage, &key, path))
        return;
    if (!tsr__cache_lock(path, TSR__SECOND, &lock)) {
        tsr__log(TSR_LOG_WARNING, "self-test: %s.lock has been held for 1 s", path);
        return;
    }
    /* Another process may have stored results in the meantime. */
    if (tsr__results_read(info, storage, &stored) != TSR_OK)
        stored.count = 0;
    for (int i = 0; i < results->count; i++)
        tsr__results_set(&stored, &results->tests[i]);
    int reason = tsr__cache_store(&file_kind, path, &key, entries, encode(&stored, entries));
    tsr__cache_unlock(lock);
    if (reason != 0)
        tsr__log(TSR_LOG_WARNING, "self-test: %s cannot be written: %s", path, strerror(reason));
}

tsr_status tsr__self_tests_find(const tsr_device_info *device, tsr__self_tests *out)
{
    tsr__self_tests found;
    TSR__REQUIRE(device != NULL && out != NULL, "self_tests_find: %s is NULL",
                 device ? "out" : "device");
    TSR__TRY(tsr__results_read(device, tsr__storage_of(device), &found));
    *out = found;
    return TSR_OK;
}
