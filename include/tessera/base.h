/* Status codes, error detail, logging and version: what every other header builds on.
 *
 * Everywhere: a function that returns a status answers TSR_ERR_INVALID to a pointer that is NULL
 * and may not be. One that only says something of an object says 0, false or NULL of none at all.
 *
 * Macros such as tsr_device_params(.device = "1") are for C. In C++ they would take the address of
 * a temporary; fill the struct: `tsr_device_params params{}; params.device = "1";`. */
#ifndef TESSERA_BASE_H
#define TESSERA_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(TSR_STATIC)
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

/* What a fallible call returns. 0 is success, every error is negative. Values never change meaning.
 */
typedef enum tsr_status {
    TSR_OK = 0,
    TSR_ERR_INVALID = -1,       /* an argument is wrong: shape, dtype, range, NULL, overlap */
    TSR_ERR_NO_MEMORY = -2,     /* the host is out of memory */
    TSR_ERR_DEVICE_MEMORY = -3, /* a device heap cannot hold the request */
    TSR_ERR_UNSUPPORTED = -4,   /* this build or this device cannot do it */
    TSR_ERR_NOT_FOUND = -5,     /* no such device, file or name */
    TSR_ERR_DEVICE_LOST = -6,   /* the device is gone; every later call on it says so too */
    TSR_ERR_DRIVER = -7,        /* the driver failed a call for a reason of its own */
    TSR_ERR_IO = -8,            /* reading or writing a file failed */
    TSR_ERR_OVERFLOW = -9,      /* a size does not fit the integers it is computed in */
    TSR_ERR_TIMEOUT = -10,      /* a deadline passed */
    TSR_ERR_PEER_LOST = -11     /* another process of the job is gone */
} tsr_status;

/* The name of a status, such as "TSR_ERR_INVALID"; "TSR_ERR_?" for a value that is none. Static
 * storage. */
TSR_API const char *tsr_status_name(tsr_status status);

/* The calling thread's last error in words that name the values, such as
 * "matmul: inner dimensions differ: a is [3,4], b is [5,6]". Empty before the first error. The
 * string belongs to the library and lives until the thread's next failing call. Success does not
 * clear it. */
TSR_API const char *tsr_last_error(void);

typedef enum tsr_log_level {
    TSR_LOG_ERROR = 1,
    TSR_LOG_WARNING = 2,
    TSR_LOG_INFO = 3,
    TSR_LOG_DEBUG = 4
} tsr_log_level;

/* Receives one message, without a trailing newline. May be called from any thread. */
typedef void (*tsr_log_fn)(void *user, tsr_log_level level, const char *message);

/* Sends messages up to `level` to `fn`; NULL turns logging off, which is how a process starts. The
 * library itself never prints. Applies to the whole process; safe to call from any thread. */
TSR_API void tsr_log_set(tsr_log_fn fn, void *user, tsr_log_level level);

/* The library's version, such as "0.1.0". Static storage. */
TSR_API const char *tsr_version(void);

#ifdef __cplusplus
}
#endif

#endif
