/* The program that other_headers.sh builds with the headers of this library, with older and with
 * newer ones (other_headers.awk). It prints results, which must be the same for all three. */
#ifndef TESTS_ABI_PROGRAM_H
#define TESTS_ABI_PROGRAM_H

#include <tessera/tessera.h>

/* Ends the program unless a call returns TSR_OK. */
#define OK(call) abi_ok(#call, (call))
void abi_ok(const char *call, tsr_status status);

/* With newer headers: `params`, a variable of the struct `type`, is refused by name if the field
 * that this library does not know is not 0. `call` passes it to a function. */
#ifdef NEWER
#define REFUSED(type, params, call)                                                                \
    do {                                                                                           \
        (params).newer_field = 1;                                                                  \
        abi_refused(#type, call);                                                                  \
        (params).newer_field = 0;                                                                  \
    } while (0)
void abi_refused(const char *type, tsr_status status);
#else
#define REFUSED(type, params, call) ((void)(params), (void)sizeof(call))
#endif

/* As REFUSED, for a struct that is otherwise not used. */
#define REFUSED_ALONE(type, call)                                                                  \
    do {                                                                                           \
        type given = TSR_INIT(type);                                                               \
        REFUSED(type, given, call);                                                                \
    } while (0)

/* A struct that a function writes, between bytes that it must not write. */
#define RESULT(type)                                                                               \
    struct {                                                                                       \
        type value;                                                                                \
        unsigned char after[64];                                                                   \
    }
#define RESULT_BEGIN(type, result)                                                                 \
    do {                                                                                           \
        memset(&(result), 0xa5, sizeof(result));                                                   \
        (result).value.struct_size = sizeof(type);                                                 \
    } while (0)
/* Checks that a function has written exactly the struct: with newer headers, the field that this
 * library does not know is 0. */
#ifdef NEWER
#define RESULT_NEWER_FIELD(result) ((result).value.newer_field)
#else
#define RESULT_NEWER_FIELD(result) UINT64_C(0)
#endif
#define RESULT_END(type, result)                                                                   \
    abi_written(#type, sizeof(type), (result).value.struct_size, RESULT_NEWER_FIELD(result),       \
                (result).after)
void abi_written(const char *type, size_t size, size_t struct_size, uint64_t newer_field,
                 const unsigned char after[64]);

void abi_print(const char *name, int64_t count, const double *values);

/* What the program does. `data` is the folder of test data. */
void abi_host(const char *data);
void abi_device(void);

#endif
