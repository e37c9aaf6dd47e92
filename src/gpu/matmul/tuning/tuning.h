/* Tuning: measuring which kernel computes a matrix product fastest on a device, and using this
 * kernel. Only the tool and tests use these functions (src/tool_seam.h).
 *
 * tsr_matmul chooses a kernel by rules of thumb. A tuning replaces that choice for classes of
 * products. `tessera bench --tune` makes a tuning and stores it in a file in
 * $XDG_CACHE_HOME/tessera (or ~/.cache/tessera). There is one file for each kind of device and each
 * version of its driver. Each open device reads its file once: when the device first computes a
 * product or is first passed to a function of this header. If a file is damaged, or was made for
 * the kernels of another build, a message is logged and the file is not used. If the environment
 * variable TESSERA_TUNING is 0, the file is not read.
 *
 * Two products are in the same class if they have the same dtypes of a, b and y; if the same
 * dimension of a and of b is contiguous, and vectors of four elements can be loaded along it in
 * both or in neither; if both or neither have an epilogue (alpha, bias, activation, accumulation);
 * and if m, n, k and the number of matrices are the same after rounding each up to a power of two
 * (513 and 1024 are the same).
 *
 * Different kernels add in different orders. The bits of a product therefore depend on its shapes,
 * dtypes and strides, on the device, and on the tuning file. They do not change between runs unless
 * the device is tuned.
 *
 * Threads: several threads may use a device at the same time, but only one at a time may use a
 * stream or a tensor. */
#ifndef TSR_GPU_MATMUL_TUNING_TUNING_H
#define TSR_GPU_MATMUL_TUNING_TUNING_H

#include "tessera/device.h"
#include "tessera/matmul.h"

#define TSR__TUNING_KERNEL_SIZE 24
#define TSR__TUNING_MAX_SPLITS 64

/* A kernel, and into how many ranges it divides k. */
typedef struct tsr__tuning_choice {
    char kernel[TSR__TUNING_KERNEL_SIZE]; /* a configuration's name, such as "tiled-m" */
    /* The largest number of ranges into which k is divided. The products of each range are summed
     * separately, and these partial sums are added at the end. 0: the number of ranges that the
     * kernel usually takes. */
    uint32_t splits;
} tsr__tuning_choice;

#define tsr__tuning_choice(...) (&(tsr__tuning_choice){__VA_ARGS__})

typedef struct tsr__tuning_info {
    uint64_t shape_class;      /* equal for products of one class; 0: the product is empty */
    tsr__tuning_choice usual;  /* the choice without a tuning; `splits` is for this product */
    tsr__tuning_choice chosen; /* the choice that tsr_matmul makes; `splits` is for this product */
    bool tuned;                /* `chosen` comes from a tuning */
} tsr__tuning_info;

/* Describes how tsr_matmul would compute this product. Records nothing. Errors: those of
 * tsr_matmul. */
tsr_status tsr__tuning_inspect(tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *a,
                               const tsr_tensor *b, const tsr_matmul_params *params,
                               tsr__tuning_info *out) TSR_NODISCARD;

/* Lists the choices with which this device can compute the product, without the usual one: writes
 * the choice numbered `index`, counted from 0. Errors: TSR_ERR_NOT_FOUND if `index` is beyond the
 * last choice, and those of tsr_matmul. */
tsr_status tsr__tuning_candidate(tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *a,
                                 const tsr_tensor *b, const tsr_matmul_params *params, int index,
                                 tsr__tuning_choice *out) TSR_NODISCARD;

/* Does the same as tsr_matmul with this choice. NULL means the usual choice without a tuning.
 * Errors: those of tsr_matmul, TSR_ERR_UNSUPPORTED (the kernel does not exist, or cannot compute
 * this product on this device) and TSR_ERR_INVALID (more than TSR__TUNING_MAX_SPLITS splits). */
tsr_status tsr__tuning_matmul(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                              const tsr_tensor *b, const tsr_matmul_params *params,
                              const tsr__tuning_choice *choice) TSR_NODISCARD;

/* Makes this device object compute all products of this product's class with `choice` from now on;
 * NULL restores the usual choice. If the kernel cannot compute some product of the class, the usual
 * choice is used for that product. Stores nothing in the file. Errors: those of tsr__tuning_matmul,
 * TSR_ERR_INVALID for an empty product, TSR_ERR_OVERFLOW (too many classes). */
tsr_status tsr__tuning_set(tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *a,
                           const tsr_tensor *b, const tsr_matmul_params *params,
                           const tsr__tuning_choice *choice) TSR_NODISCARD;

/* Stores the choices that tsr__tuning_set has set in the device's file, atomically. The other
 * classes in the file remain, even if several processes store at the same time. Blocks for up to 5
 * s while another process stores. Errors: TSR_ERR_NOT_FOUND (there is no cache folder), TSR_ERR_IO
 * (also if another process stores for longer than 5 s), TSR_ERR_NO_MEMORY. */
tsr_status tsr__tuning_save(tsr_device *device) TSR_NODISCARD;

/* Returns the number of classes for which this device object uses a tuning. */
int tsr__tuning_count(const tsr_device *device);

/* Writes the path of the device's tuning file, which need not exist, to out[size], with a
 * terminating zero. Errors: TSR_ERR_NOT_FOUND (there is no cache folder), TSR_ERR_INVALID (the path
 * does not fit). */
tsr_status tsr__tuning_path(const tsr_device *device, char *out, size_t size) TSR_NODISCARD;

#define TSR__TUNING_PATH_SIZE 1024
#define TSR__TUNING_REASON_SIZE 256

typedef enum tsr__tuning_state {
    TSR__TUNING_NONE = 0, /* nothing is stored for this device */
    TSR__TUNING_USED,     /* devices that have not read a tuning yet will use it */
    TSR__TUNING_IGNORED,  /* devices would use the file, but TESSERA_TUNING is 0 */
    TSR__TUNING_REFUSED   /* the file cannot be used; products are computed as usual */
} tsr__tuning_state;

typedef struct tsr__tuning_stored {
    tsr__tuning_state state;
    int classes; /* the number of classes in the file; 0 if it is refused */
    /* The time when the file was last written, in seconds since 1970 (UTC); 0: never. Files do
     * not record which version of tessera wrote them. */
    int64_t written_s;
    char path[TSR__TUNING_PATH_SIZE]; /* the path of the file; "" for TSR__TUNING_NONE */
    /* Why the file is refused; otherwise "". The file is damaged, or was made for the kernels of
     * another build; or it is for another version of the driver, and there is no file for this
     * version. */
    char reason[TSR__TUNING_REASON_SIZE];
} tsr__tuning_stored;

/* Describes the tuning file of a device without opening the device. `device` comes from
 * tsr_device_list_create. Any thread may call this function. Errors: TSR_ERR_INVALID (an argument
 * is NULL), TSR_ERR_NO_MEMORY. */
tsr_status tsr__tuning_find(const tsr_device_info *device, tsr__tuning_stored *out) TSR_NODISCARD;

#endif
