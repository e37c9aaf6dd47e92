/* Tuning: measuring which kernel computes which matrix products fastest on a device, and using it.
 *
 * tsr_matmul chooses a kernel by rules of thumb. A tuning replaces that choice for classes of
 * products. It is kept in a file of $XDG_CACHE_HOME/tessera (or ~/.cache/tessera), one for each
 * kind of device and version of its driver, and read once per open device: when it first computes a
 * product or is first passed to a function of this header. `tessera bench --tune` makes one. A file
 * that is damaged, or belongs to the kernels of another build, is logged and not used. If the
 * environment variable TESSERA_TUNING is 0, the file is not read.
 *
 * A class is: the dtypes of a, b and y; which direction of a and b is contiguous, and whether
 * vectors of four can be loaded along it; whether the product has an epilogue (alpha, bias,
 * activation, accumulation); and m, n, k and the number of matrices, each rounded up to a power of
 * two (513 to 1024 are the same).
 *
 * Kernels add in different orders. A product's bits depend on its shapes, dtypes and strides, on
 * the device and on this file. They do not change between runs unless the device is tuned.
 *
 * Threads: several may use one device at a time, but each stream and tensor only one at a time. */
#ifndef TESSERA_TUNING_H
#define TESSERA_TUNING_H

#include "tessera/device.h"
#include "tessera/matmul.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_TUNING_KERNEL_SIZE 24
#define TSR_TUNING_MAX_SPLITS 64

/* A way to compute a product. */
typedef struct tsr_tuning_choice {
    char kernel[TSR_TUNING_KERNEL_SIZE]; /* a configuration's name, such as "tiled-m" */
    uint32_t splits; /* parts that k is cut into at most, their sums added at the end; 0: as the
                        kernel usually does */
} tsr_tuning_choice;

#define tsr_tuning_choice(...) (&(tsr_tuning_choice){__VA_ARGS__})

typedef struct tsr_tuning_info {
    uint64_t shape_class;     /* equal for products of one class; 0: the product is empty */
    tsr_tuning_choice usual;  /* the choice without a tuning; `splits` is for this product */
    tsr_tuning_choice chosen; /* the choice that tsr_matmul makes; `splits` is for this product */
    bool tuned;               /* `chosen` comes from a tuning */
} tsr_tuning_info;

/* Describes how tsr_matmul would compute this product. Records nothing. Errors: those of
 * tsr_matmul. */
TSR_API TSR_NODISCARD tsr_status tsr_tuning_inspect(tsr_stream *stream, const tsr_tensor *y,
                                                    const tsr_tensor *a, const tsr_tensor *b,
                                                    const tsr_matmul_params *params,
                                                    tsr_tuning_info *out);

/* Writes the choice numbered `index`, counted from 0, among those by which this device can compute
 * the product besides the usual one. TSR_ERR_NOT_FOUND past the last; other errors are those of
 * tsr_matmul. */
TSR_API TSR_NODISCARD tsr_status tsr_tuning_candidate(tsr_stream *stream, const tsr_tensor *y,
                                                      const tsr_tensor *a, const tsr_tensor *b,
                                                      const tsr_matmul_params *params, int index,
                                                      tsr_tuning_choice *out);

/* Does the same as tsr_matmul with this choice. NULL means the usual choice without a tuning.
 * Errors: those of tsr_matmul, TSR_ERR_UNSUPPORTED (the kernel does not exist, or cannot compute
 * this product on this device) and TSR_ERR_INVALID (more than TSR_TUNING_MAX_SPLITS splits). */
TSR_API TSR_NODISCARD tsr_status tsr_tuning_matmul(tsr_stream *stream, tsr_tensor *y,
                                                   const tsr_tensor *a, const tsr_tensor *b,
                                                   const tsr_matmul_params *params,
                                                   const tsr_tuning_choice *choice);

/* Makes this device object compute all products of this product's class with `choice` from now on;
 * NULL restores the usual choice. A product of the class that the kernel cannot compute takes the
 * usual one. Stores nothing. Errors: those of tsr_tuning_matmul, TSR_ERR_INVALID for an empty
 * product, TSR_ERR_OVERFLOW (too many classes). */
TSR_API TSR_NODISCARD tsr_status tsr_tuning_set(tsr_stream *stream, const tsr_tensor *y,
                                                const tsr_tensor *a, const tsr_tensor *b,
                                                const tsr_matmul_params *params,
                                                const tsr_tuning_choice *choice);

/* Stores the choices that were set, atomically. The file keeps its other classes, even if several
 * processes store at once. Blocks for up to 5 s while another process stores. Errors:
 * TSR_ERR_NOT_FOUND (there is no cache folder), TSR_ERR_IO (also if another process stores for
 * longer than 5 s), TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_tuning_save(tsr_device *device);

/* The number of classes that this device object computes by a tuning. */
TSR_API int tsr_tuning_count(const tsr_device *device);

/* The path of the device's tuning file, which need not exist: at most `size` - 1 bytes and a zero.
 * Errors: TSR_ERR_NOT_FOUND (there is no cache folder), TSR_ERR_INVALID (the path does not fit). */
TSR_API TSR_NODISCARD tsr_status tsr_tuning_path(const tsr_device *device, char *out, size_t size);

#define TSR_TUNING_PATH_SIZE 1024
#define TSR_TUNING_REASON_SIZE 256

typedef enum tsr_tuning_state {
    TSR_TUNING_NONE = 0, /* nothing is stored */
    TSR_TUNING_USED,     /* devices that have not read a tuning yet will use it */
    TSR_TUNING_IGNORED,  /* they would use it, but TESSERA_TUNING is 0 */
    TSR_TUNING_REFUSED   /* the file cannot be used; products are computed as usual */
} tsr_tuning_state;

typedef struct tsr_tuning_stored {
    tsr_tuning_state state;
    int classes;       /* the number of classes in the file; 0 if it is refused */
    int64_t written_s; /* when the file was written last, in seconds since 1970 (UTC); 0: never. By
                          which version of tessera, files do not say */
    char path[TSR_TUNING_PATH_SIZE];     /* the file's; "" for TSR_TUNING_NONE */
    char reason[TSR_TUNING_REASON_SIZE]; /* why it is refused: damaged; of another build's kernels;
                                            or of another version of the driver, where there is none
                                            for this one. Otherwise "" */
} tsr_tuning_stored;

/* Describes the tuning file of a device, which tsr_device_list_init has described, without opening
 * the device. Any thread. Errors: TSR_ERR_INVALID (an argument is NULL), TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_tuning_find(const tsr_device_info *device,
                                                 tsr_tuning_stored *out);

#ifdef __cplusplus
}
#endif

#endif
