/* Faults of drivers that are known from public reports, and what the library does about each. The
 * table is applied to a device when it is listed and when it is opened. TESSERA_KNOWN_FAULTS=0
 * makes the library ignore it, to find out whether a fault still exists. */
#ifndef TSR_GPU_DEVICE_KNOWN_FAULTS_H
#define TSR_GPU_DEVICE_KNOWN_FAULTS_H

#include "gpu/device/probe.h"

typedef enum tsr__fault_effect {
    TSR__FAULT_NO_COOPMAT, /* kernels do not use cooperative matrices */
    /* kernels do not use cooperative matrices, and the driver is not asked for their shapes */
    TSR__FAULT_NO_COOPMAT_QUERY,
    /* the library assumes subgroups of 32 invocations, and no pipeline requires full subgroups */
    TSR__FAULT_SUBGROUPS_OF_32,
    TSR__FAULT_NO_HOST_IMPORT, /* no memory of the process is imported as device memory */
    /* kernels have no 16-bit variables, and widen f16 by integer arithmetic */
    TSR__FAULT_NO_HALVES,
    TSR__FAULT_SHORT_WORK, /* the limit of work for batches and dispatches is lower */
    TSR__FAULT_EFFECTS
} tsr__fault_effect;

typedef bool tsr__fault_condition(const tsr__capabilities *capabilities,
                                  const tsr_device_info *info);

/* One fault: a row of the table. A device has the fault if all members from `drivers` to
 * `condition` that are not 0 apply to it. */
typedef struct tsr__known_fault {
    const char *name;        /* the name for users, for example "amd-emulated-coopmat" */
    const char *description; /* what the driver does wrong: a clause whose subject is the driver */
    const char *source;      /* the public report */
    VkDriverId drivers[3];   /* the drivers that have the fault; a 0 ends a shorter list */
    uint32_t vendor_id;
    uint32_t first_device, last_device; /* device ids, inclusive */
    /* versions of the driver, as the driver encodes them, inclusive */
    uint32_t first_version, last_version;
    tsr__fault_condition *condition;
    tsr__fault_effect effect;
} tsr__known_fault;

/* Returns the row at `index`, or NULL past the end of the table. */
const tsr__known_fault *tsr__known_fault_at(int index);

bool tsr__known_fault_matches(const tsr__known_fault *fault, const tsr__capabilities *capabilities,
                              const tsr_device_info *info);

/* True if some fault of the device has this effect. */
bool tsr__known_faults_demand(const tsr__capabilities *capabilities, const tsr_device_info *info,
                              tsr__fault_effect effect);

/* Lists the device's faults in `facts`, and changes `facts` and `capabilities` by their effects.
 * Everything else about the device must have been probed, except for the choice of a cooperative
 * matrix. */
void tsr__known_faults_apply(tsr__capabilities *capabilities, tsr__device_facts *facts);

#endif
