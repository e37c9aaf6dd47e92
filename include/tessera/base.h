/* Status codes, error texts, logging, versions, and the rules for structs. Every other header
 * includes this one.
 *
 * A function that returns a status returns TSR_ERR_INVALID for a pointer that is NULL and must not
 * be. A function that only reads a property of an object returns 0, false or NULL for a NULL
 * object.
 *
 * docs/threads.md says what several threads may use at the same time, and docs/lifetimes.md which
 * object must outlive which.
 *
 * Structs that can grow. Structs of parameters begin with `size_t struct_size`, so that later
 * releases can append fields. Each has a macro of its name, which sets struct_size and points to
 * the struct: tsr_device_params(.device = "1"). Elsewhere, TSR_INIT(tsr_device_params) is a value
 * with struct_size set and everything else 0. A function handles a struct of another size than its
 * own:
 *
 *     struct_size is 0      TSR_ERR_INVALID
 *     a shorter struct      the missing fields are 0
 *     a longer struct       TSR_ERR_INVALID if a field that the library does not know is not 0
 *
 * Padding may have any contents. New fields therefore begin at the old size, never in the padding
 * at the end of the old struct, and have no padding between or behind them: a gap is a field of its
 * own, `reserved`, which is 0.
 *
 * Structs that a function writes, and structs in arrays that the caller passes, begin with their
 * size, too: TSR_INIT sets it, fields that the library does not know become 0, and a shorter struct
 * gets no more than its size.
 *
 * Values never change: tsr_layout, tsr_shard_range, the states of generators (tsr_rng and its
 * members), tsr_feistel, tsr_threefry_key, tsr_seed_point, tsr_seed_key, tsr_loss_scaler,
 * tsr_logit_bias and tsr_log_probability.
 * Structs that only the library creates, and to which it gives pointers, may get more fields at
 * their end: tsr_device_info, tsr_device_list, tsr_heap_info, tsr_coopmat_shape, tsr_generated,
 * tsr_quant_format, tsr_loader_work, tsr_loader_worker, tsr_shard_request, tsr_checkpoint_summary,
 * tsr_checkpoint_part and tsr_checkpoint_tensor.
 *
 * Zero: every field that is 0, false or NULL has its default, which its comment states. Where the
 * number zero can be wanted and is not the default, pass TSR_ZERO: the negative zero is the number
 * zero, the positive zero is a field that was not set. Memory sizes of 0 (memory_bytes,
 * memory_limit_bytes) set no limit, also in arrays with one for each rank; 1 is a memory that holds
 * nothing.
 *
 * The macros of parameters are for C only: in C++ they would take the address of a temporary. In
 * C++ fill a variable: `auto params = TSR_INIT(tsr_device_params); params.device = "1";`. */
#ifndef TESSERA_BASE_H
#define TESSERA_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(TSR_STATIC)
#define TSR_API
#elif defined(_WIN32) && defined(TSR_BUILDING_DLL)
#define TSR_API __declspec(dllexport)
#elif defined(_WIN32)
#define TSR_API
#elif defined(__GNUC__)
#define TSR_API __attribute__((visibility("default")))
#else
#define TSR_API
#endif

#if defined(__GNUC__)
#define TSR_NODISCARD __attribute__((warn_unused_result))
#else
#define TSR_NODISCARD
#endif

/* A value of the struct `type` whose struct_size is set and whose other fields are 0. */
#ifdef __cplusplus
#define TSR_INIT(type)                                                                             \
    ([]() {                                                                                        \
        type tsr_initial_value{};                                                                  \
        tsr_initial_value.struct_size = sizeof(type);                                              \
        return tsr_initial_value;                                                                  \
    }())
#else
#define TSR_INIT(type) ((type){.struct_size = sizeof(type)})
#endif

/* The number zero, in a field of parameters whose default is another number. */
#define TSR_ZERO (-0.0)

/* The result of a call that can fail. 0 is success, every error is negative. Values never change
 * their meaning. */
typedef enum tsr_status {
    TSR_OK = 0,
    TSR_ERR_INVALID = -1,       /* an argument is wrong: shape, dtype, range, NULL, overlap */
    TSR_ERR_NO_MEMORY = -2,     /* the host is out of memory */
    TSR_ERR_DEVICE_MEMORY = -3, /* a device heap cannot hold the request */
    TSR_ERR_UNSUPPORTED = -4,   /* this build or this device cannot do it */
    TSR_ERR_NOT_FOUND = -5,     /* no such device, file or name */
    TSR_ERR_DEVICE_LOST = -6,   /* the device was lost; every later call on it fails like this */
    TSR_ERR_DRIVER = -7,        /* the driver failed a call for another reason */
    TSR_ERR_IO = -8,            /* reading or writing a file failed */
    TSR_ERR_OVERFLOW = -9,      /* a size does not fit the integers it is computed in */
    TSR_ERR_TIMEOUT = -10,      /* a deadline passed */
    TSR_ERR_PEER_LOST = -11     /* another process of the job has failed or ended */
} tsr_status;

/* Returns the name of a status, such as "TSR_ERR_INVALID", or "TSR_ERR_?" for any other value. The
 * string is in static storage. */
TSR_API const char *tsr_status_name(tsr_status status);

/* Returns the text of the calling thread's last error, which names the values that are wrong, such
 * as "matmul: inner dimensions differ: a is [3,4], b is [5,6]". It is empty before the first error.
 * The string belongs to the library and is valid until the thread's next failing call. Success does
 * not clear it. */
TSR_API const char *tsr_last_error(void);

typedef enum tsr_log_level {
    TSR_LOG_ERROR = 1,
    TSR_LOG_WARNING = 2,
    TSR_LOG_INFO = 3,
    TSR_LOG_DEBUG = 4
} tsr_log_level;

/* Receives one message, without a trailing newline. The library may call it from any thread. */
typedef void (*tsr_log_fn)(void *user, tsr_log_level level, const char *message);

/* Sends messages up to `level` to `fn`. NULL turns logging off, which is the state at the start of
 * a process. The library itself never prints. The setting applies to the process, and any thread
 * may change it. */
TSR_API void tsr_log_set(tsr_log_fn fn, void *user, tsr_log_level level);

/* The version of these headers. TSR_VERSION is a number that grows with each release, for #if. */
#define TSR_VERSION_MAJOR 0
#define TSR_VERSION_MINOR 1
#define TSR_VERSION_PATCH 0
#define TSR_VERSION (TSR_VERSION_MAJOR * 10000 + TSR_VERSION_MINOR * 100 + TSR_VERSION_PATCH)

/* Returns the library's version, such as "0.1.0", which may be newer than that of the headers with
 * which a program was built. The string is in static storage. */
TSR_API const char *tsr_version(void);

/* Returns whether this build of the library has a feature: "vulkan", "ucx", "pmix", "shaderc" or
 * "cpu_kernels", the options of the build. False for any other name and for NULL. */
TSR_API bool tsr_has(const char *feature);

#ifdef __cplusplus
}
#endif

#endif
