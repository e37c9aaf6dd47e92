/* Structs of the public interface that begin with `size_t struct_size` (base.h). A program that
 * was built with older or newer headers passes structs of another size than the library's own. The
 * public functions therefore never use a struct of the caller directly: they copy it to one of the
 * library's size, or write no more of a result than the caller's struct holds. */
#ifndef TSR_BASE_STRUCT_SIZE_H
#define TSR_BASE_STRUCT_SIZE_H

#include <stdint.h>

#include "base/error.h"

/* Copies the caller's struct `given` to `out`, of `size` bytes, the size in this library. Fields
 * that the caller's struct does not have become 0, and so does everything if `given` is NULL;
 * struct_size becomes `size`. `name` is the type's name. Errors: TSR_ERR_INVALID if struct_size is
 * not set, and for fields that this library does not know and that are not 0. `out` is then
 * undefined. */
tsr_status tsr__struct_take(const char *name, size_t size, const void *given, void *out);

/* Copies an array of structs; the stride is the struct_size of the first one. Sets *out to an
 * array [count], which the caller frees with tsr__free; NULL for a count of 0. Errors: those of
 * tsr__struct_take, naming the element; TSR_ERR_INVALID if the elements have different sizes, or
 * `given` is NULL and count is not 0; TSR_ERR_OVERFLOW; TSR_ERR_NO_MEMORY. */
tsr_status tsr__struct_take_array(const char *name, size_t size, uint64_t count, const void *given,
                                  void **out);

/* Checks the struct_size of a struct that a function will write. Errors: TSR_ERR_INVALID if it is
 * not set. */
tsr_status tsr__struct_check_out(const char *name, const void *out);

/* Checks an array of structs that a function will write; all have the struct_size of the first.
 * Errors: TSR_ERR_INVALID if it is not set, or an element has another one. */
tsr_status tsr__struct_check_out_array(const char *name, uint64_t count, const void *out);

/* Writes `value`, of `size` bytes, to the caller's struct, whose struct_size must have been checked
 * and does not change: at most struct_size bytes. Fields that this library does not know become
 * 0. */
void tsr__struct_write(size_t size, const void *value, void *out);

/* Writes the array values[count], of structs of `size` bytes, to the caller's array, which must
 * have been checked. */
void tsr__struct_write_array(size_t size, uint64_t count, const void *values, void *out);

/* Replaces the parameter `params`, a pointer to the caller's struct or NULL, by a pointer to a copy
 * of the library's size in a local variable. Returns from the enclosing function if that fails. */
#define TSR__TAKE(type, params)                                                                    \
    type params##_taken_;                                                                          \
    TSR__TRY(tsr__struct_take(#type, sizeof(type), params, &params##_taken_));                     \
    (params) = &params##_taken_

/* As tsr__struct_take, for a struct that the caller's struct points to. */
#define TSR__TAKE_PART(type, given, out) tsr__struct_take(#type, sizeof(type), given, out)

/* Writes `value`, a struct of the library's own, to the caller's struct. Returns from the enclosing
 * function if its struct_size is not set. */
#define TSR__GIVE(type, value, out)                                                                \
    do {                                                                                           \
        TSR__TRY(tsr__struct_check_out(#type, out));                                               \
        tsr__struct_write(sizeof(type), value, out);                                               \
    } while (0)

#endif
