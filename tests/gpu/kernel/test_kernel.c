/* Kernels of the user's own, in GLSL and SPIR-V: their arguments, and what is refused before a
 * driver sees it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/device/device.h"
#include "gpu/spirv/reader.h"
#include "gpu/spirv/spirv.h"
#include "support/check_main.h"
#include "support/gpu.h"
#include "tsr_config.h"

static const uint32_t saxpy_spirv[] =
#include "saxpy.inc"
    ;
#define SAXPY_WORDS (sizeof saxpy_spirv / sizeof *saxpy_spirv)

#define HEAD                                                                                       \
    "#version 450\n"                                                                               \
    "#extension GL_EXT_buffer_reference : require\n"                                               \
    "layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float v[]; };\n" \
    "layout(local_size_x = 64) in;\n"

static const char saxpy_glsl[] = HEAD
    "layout(push_constant, std430) uniform Params { Floats x; Floats y; uint n; float scale; } p;\n"
    "void main() {\n"
    "    uint i = gl_GlobalInvocationID.x;\n"
    "    if (i < p.n) p.y.v[i] = p.scale * p.x.v[i] + p.y.v[i];\n"
    "}\n";

typedef struct scalars {
    uint32_t n;
    float scale;
} scalars;

static tsr_kernel *create(const tsr_kernel_params *params)
{
    tsr_kernel *kernel = NULL;
    GPU_OK(tsr_kernel_create(gpu, params, &kernel));
    return kernel;
}

static tsr_kernel *create_saxpy(uint32_t workgroup, float factor)
{
    uint32_t constants[2] = {workgroup};
    memcpy(&constants[1], &factor, sizeof factor);
    return create(tsr_kernel_params(.spirv = saxpy_spirv, .spirv_words = SAXPY_WORDS,
                                    .tensor_count = 2, .scalar_bytes = sizeof(scalars),
                                    .constants = constants, .constant_count = 2));
}

static void run_saxpy(tsr_kernel *kernel, tsr_tensor *y, tsr_tensor *x, uint32_t n, float scale,
                      uint32_t workgroup)
{
    const tsr_kernel_argument arguments[] = {tsr_kernel_argument(.tensor = x),
                                             tsr_kernel_argument(.tensor = y, .written = true)};
    const uint32_t groups[] = {(n + workgroup - 1) / workgroup, 1, 1};
    GPU_OK(tsr_kernel_run(queue, kernel, arguments, &(scalars){n, scale}, groups));
}

#define N 1000

static void check_saxpy(tsr_kernel *kernel, float factor, uint32_t workgroup)
{
    const int64_t shape[] = {N};
    double x[N], y[N], got[N];
    for (int i = 0; i < N; i++) {
        x[i] = i;
        y[i] = 1000 - i;
    }
    tsr_tensor *tx = gpu_new(TSR_F32, 1, shape), *ty = gpu_new(TSR_F32, 1, shape);
    gpu_put(tx, x);
    gpu_put(ty, y);
    run_saxpy(kernel, ty, tx, N - 1, 0.5f, workgroup);
    /* The second run reads the result of the first. From the arguments the library knows that it
     * needs a barrier between them. */
    run_saxpy(kernel, ty, tx, N - 1, 2, workgroup);
    gpu_get(ty, got);
    for (int i = 0; i < N; i++)
        ck_assert_double_eq(got[i], y[i] + (i < N - 1 ? 2.5 * (double)factor * x[i] : 0));
    tsr_tensor_destroy(&tx);
    tsr_tensor_destroy(&ty);
}

START_TEST(spirv_with_constants)
{
    tsr_kernel *kernel = create_saxpy(32, 3);
    check_saxpy(kernel, 3, 32);
    tsr_kernel_destroy(&kernel);
    ck_assert_ptr_null(kernel);
    kernel = create_saxpy(128, -1);
    check_saxpy(kernel, -1, 128);
    tsr_kernel_destroy(&kernel);
    tsr_kernel_destroy(&kernel);
    tsr_kernel_destroy(NULL);
}
END_TEST

/* Tests every subgroup size that the device reports. If kernels cannot set the size, all sizes must
 * be refused. */
START_TEST(subgroups_of_a_size)
{
    const tsr_device_info *info = tsr_device_get_info(gpu);
    for (uint32_t size = info->subgroup_size_min; size <= info->subgroup_size_max; size *= 2) {
        const uint32_t workgroup = 128;
        uint32_t constants[2] = {workgroup};
        const float factor = 5;
        memcpy(&constants[1], &factor, sizeof factor);
        tsr_kernel *kernel = NULL;
        tsr_status status = tsr_kernel_create(
            gpu,
            tsr_kernel_params(.spirv = saxpy_spirv, .spirv_words = SAXPY_WORDS, .tensor_count = 2,
                              .scalar_bytes = sizeof(scalars), .constants = constants,
                              .constant_count = 2, .subgroup_size = size, .name = "saxpy"),
            &kernel);
        if (!gpu->subgroups_demanded) {
            char text[TSR__NAME_SIZE + 64];
            snprintf(text, sizeof text,
                     "saxpy: subgroup_size is %u; %s does not let kernels set it", (unsigned)size,
                     info->name);
            GPU_FAILS(status, TSR_ERR_UNSUPPORTED, text);
            continue;
        }
        GPU_OK(status);
        check_saxpy(kernel, factor, workgroup);
        tsr_kernel_destroy(&kernel);
    }
}
END_TEST

/* Kernels run in the right order with the library's operations and with other streams, because
 * their arguments declare what they read and write. */
START_TEST(ordered_with_other_work)
{
    const int64_t shape[] = {N};
    tsr_kernel *kernel = create_saxpy(64, 1);
    tsr_tensor *x = gpu_new(TSR_F32, 1, shape), *y = gpu_new(TSR_F32, 1, shape);
    tsr_stream *other = NULL;
    GPU_OK(tsr_stream_create(gpu, &other));
    const tsr_kernel_argument arguments[] = {tsr_kernel_argument(.tensor = x),
                                             tsr_kernel_argument(.tensor = y, .written = true)};
    GPU_OK(tsr_fill(queue, x, 1));
    GPU_OK(tsr_fill(queue, y, 0));
    for (int i = 0; i < 300; i++) /* more commands than a batch holds */
        GPU_OK(tsr_kernel_run(i % 7 == 0 ? other : queue, kernel, arguments, &(scalars){N, 1},
                              (uint32_t[]){16, 1, 1}));
    tsr_kernel_destroy(&kernel); /* recorded runs still execute */
    double got[N];
    gpu_get(y, got);
    for (int i = 0; i < N; i++)
        ck_assert_double_eq(got[i], 300);
    tsr_stream_destroy(&other);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
}
END_TEST

/* A kernel holds its device, and the stream holds the kernel's pipeline, so any order of
 * destruction is allowed. */
START_TEST(any_order_of_destruction)
{
    tsr_device *device = NULL;
    tsr_stream *stream = NULL;
    tsr_tensor *x = NULL;
    tsr_kernel *kernel = NULL;
    GPU_OK(tsr_device_open(NULL, &device));
    GPU_OK(tsr_stream_create(device, &stream));
    GPU_OK(tsr_tensor_create(device, TSR_F32, 1, (const int64_t[]){64}, &x));
    GPU_OK(tsr_kernel_create(device,
                             tsr_kernel_params(.spirv = saxpy_spirv, .spirv_words = SAXPY_WORDS,
                                               .tensor_count = 2, .scalar_bytes = 8,
                                               .constants = (const uint32_t[]){64},
                                               .constant_count = 1),
                             &kernel));
    const tsr_kernel_argument arguments[] = {tsr_kernel_argument(.tensor = x),
                                             tsr_kernel_argument(.tensor = x, .written = true)};
    GPU_OK(tsr_kernel_run(stream, kernel, arguments, &(scalars){64, 1}, (uint32_t[]){1, 1, 1}));
    tsr_device_close(&device);
    tsr_kernel_destroy(&kernel);
    tsr_tensor_destroy(&x);
    tsr_stream_destroy(&stream);
}
END_TEST

START_TEST(kernel_outlives_everything)
{
    tsr_device *device = NULL;
    tsr_kernel *kernel = NULL;
    GPU_OK(tsr_device_open(NULL, &device));
    GPU_OK(tsr_kernel_create(device,
                             tsr_kernel_params(.spirv = saxpy_spirv, .spirv_words = SAXPY_WORDS,
                                               .tensor_count = 2, .scalar_bytes = 8),
                             &kernel));
    tsr_device_close(&device);
    tsr_kernel_destroy(&kernel);
}
END_TEST

/* The address of a view is that of its first element. */
START_TEST(address_of_a_view)
{
    tsr_kernel *kernel = create_saxpy(64, 1);
    const int64_t shape[] = {100};
    tsr_tensor *x = gpu_new(TSR_F32, 1, shape), *y = gpu_new(TSR_F32, 1, shape), *vx = NULL,
               *vy = NULL;
    double values[100], got[100];
    for (int i = 0; i < 100; i++)
        values[i] = i;
    gpu_put(x, values);
    GPU_OK(tsr_fill(queue, y, 0));
    GPU_OK(tsr_tensor_slice(x, 0, 10, 20, 1, &vx));
    GPU_OK(tsr_tensor_slice(y, 0, 50, 60, 1, &vy));
    run_saxpy(kernel, vy, vx, 10, 1, 64);
    gpu_get(y, got);
    for (int i = 0; i < 100; i++)
        ck_assert_double_eq(got[i], i >= 50 && i < 60 ? i - 40 : 0);
    tsr_tensor_destroy(&vx);
    tsr_tensor_destroy(&vy);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    tsr_kernel_destroy(&kernel);
}
END_TEST

START_TEST(nothing_to_run)
{
    tsr_kernel *kernel = create_saxpy(64, 1);
    tsr_tensor *x = gpu_new(TSR_F32, 1, (const int64_t[]){4});
    const tsr_kernel_argument arguments[] = {tsr_kernel_argument(.tensor = x),
                                             tsr_kernel_argument(.tensor = x, .written = true)};
    GPU_OK(tsr_fill(queue, x, 1));
    for (int i = 0; i < 3; i++) {
        uint32_t groups[] = {1, 1, 1};
        groups[i] = 0;
        GPU_OK(tsr_kernel_run(queue, kernel, arguments, &(scalars){4, 1}, groups));
    }
    double got[4];
    gpu_get(x, got);
    ck_assert_double_eq(got[0], 1);
    tsr_tensor_destroy(&x);
    tsr_kernel_destroy(&kernel);
}
END_TEST

/* Kernels without tensors or scalars, and with the largest number of push constants. */
START_TEST(extremes_of_push_constants)
{
    if (!TSR__HAVE_SHADERC)
        return;
    tsr_kernel *kernel = create(
        tsr_kernel_params(.glsl = "#version 450\nlayout(local_size_x = 1) in;\nvoid main() {}\n"));
    GPU_OK(tsr_kernel_run(queue, kernel, NULL, NULL, (uint32_t[]){1, 1, 1}));
    tsr_kernel_destroy(&kernel);

    kernel =
        create(tsr_kernel_params(.glsl = HEAD
                                 "layout(push_constant, std430) uniform P { Floats t[16]; } p;\n"
                                 "void main() {\n"
                                 "    if (gl_LocalInvocationID.x < 1)\n"
                                 "        for (uint i = 1; i < 16; i++)\n"
                                 "            p.t[0].v[i] = p.t[i].v[0];\n"
                                 "}\n",
                                 .tensor_count = 16));
    tsr_kernel_argument arguments[16];
    for (int i = 0; i < 16; i++) {
        arguments[i] = tsr_kernel_argument(.tensor = gpu_new(TSR_F32, 1, (const int64_t[]){16}),
                                           .written = i == 0);
        GPU_OK(tsr_fill(queue, arguments[i].tensor, i));
    }
    GPU_OK(tsr_kernel_run(queue, kernel, arguments, NULL, (uint32_t[]){1, 1, 1}));
    double got[16];
    gpu_get(arguments[0].tensor, got);
    for (int i = 0; i < 16; i++) {
        ck_assert_double_eq(got[i], i);
        tsr_tensor_destroy(&arguments[i].tensor);
    }
    tsr_kernel_destroy(&kernel);
}
END_TEST

/* Declarations of push constants, and their sizes in bytes by the rules of std430. */
static const struct {
    const char *members;
    uint32_t bytes;
} blocks[] = {
    {"Floats x; uint n; float s;", 16},
    {"vec3 v; float f;", 16},
    {"uint n; vec3 v;", 28},
    {"mat3x2 m;", 24},
    {"layout(row_major) mat3x2 m;", 28},
    {"mat2 m[3];", 48},
    {"layout(row_major) mat2x4 m[2];", 64},
    {"Part parts[2];", 52},
    {"float f[N];", 20},
    {"layout(offset = 40) uint n;", 44},
};

START_TEST(blocks_of_push_constants)
{
    const uint32_t five = 5, bytes = blocks[_i].bytes;
    char glsl[1024], text[80];
    tsr_kernel *kernel = NULL;

    if (!TSR__HAVE_SHADERC)
        return;
    snprintf(glsl, sizeof glsl,
             HEAD "layout(constant_id = 0) const uint N = 2;\n"
                  "struct Part { vec3 v; uint n[2]; };\n"
                  "layout(push_constant, std430) uniform P { %s } p;\n"
                  "void main() {}\n",
             blocks[_i].members);
    snprintf(text, sizeof text, "odd: its push constants are %u bytes; the tensors' addresses and ",
             (unsigned)bytes);
    GPU_FAILS(
        tsr_kernel_create(gpu,
                          tsr_kernel_params(.glsl = glsl, .name = "odd", .scalar_bytes = bytes - 4,
                                            .constants = &five, .constant_count = 1),
                          &kernel),
        TSR_ERR_INVALID, text);
    GPU_OK(tsr_kernel_create(gpu,
                             tsr_kernel_params(.glsl = glsl, .scalar_bytes = bytes,
                                               .constants = &five, .constant_count = 1),
                             &kernel));
    tsr_kernel_destroy(&kernel);
}
END_TEST

/* Kernels in GLSL ------------------------------------------------------------------------------ */

START_TEST(glsl_runs)
{
    tsr_kernel *kernel = NULL;
    tsr_status status =
        tsr_kernel_create(gpu,
                          tsr_kernel_params(.glsl = saxpy_glsl, .tensor_count = 2,
                                            .scalar_bytes = sizeof(scalars), .name = "saxpy"),
                          &kernel);
    if (!TSR__HAVE_SHADERC) {
        GPU_FAILS(status, TSR_ERR_UNSUPPORTED, "saxpy: this build has no GLSL compiler");
        ck_assert_ptr_null(kernel);
        return;
    }
    GPU_OK(status);
    check_saxpy(kernel, 1, 64);
    tsr_kernel_destroy(&kernel);
}
END_TEST

START_TEST(glsl_messages_are_in_the_error)
{
    if (!TSR__HAVE_SHADERC)
        return;
    tsr_kernel *kernel = NULL;
    GPU_FAILS(tsr_kernel_create(
                  gpu,
                  tsr_kernel_params(.name = "mine", .glsl = "#version 450\n\nvoid main() {\n"
                                                            "    undeclared_thing = 1;\n}\n"),
                  &kernel),
              TSR_ERR_INVALID, "mine:4: error: 'undeclared_thing' : undeclared identifier");
    ck_assert_int_ne(tsr_last_error()[strlen(tsr_last_error()) - 1], '\n');
    GPU_FAILS(tsr_kernel_create(gpu, tsr_kernel_params(.glsl = ""), &kernel), TSR_ERR_INVALID,
              "kernel does not compile: there is no #version line");
    GPU_FAILS(
        tsr_kernel_create(
            gpu,
            tsr_kernel_params(.glsl = "#version 450\n#include \"/etc/passwd\"\nvoid main() {}"),
            &kernel),
        TSR_ERR_INVALID, "kernel:2");
    ck_assert_ptr_null(kernel);
}
END_TEST

START_TEST(what_the_device_lacks)
{
    if (!TSR__HAVE_SHADERC)
        return;
    tsr_kernel *kernel = NULL;
    GPU_FAILS(
        tsr_kernel_create(gpu,
                          tsr_kernel_params(.glsl = HEAD
                                            "layout(push_constant) uniform P { Floats x; } p;\n"
                                            "void main() { double d = p.x.v[0];\n"
                                            "p.x.v[1] = float(d * d); }\n",
                                            .tensor_count = 1),
                          &kernel),
        TSR_ERR_UNSUPPORTED, "64-bit floats");
    GPU_FAILS(tsr_kernel_create(
                  gpu,
                  tsr_kernel_params(.glsl = "#version 450\n"
                                            "layout(local_size_x = 64, local_size_y = 64) in;\n"
                                            "void main() {}\n"),
                  &kernel),
              TSR_ERR_INVALID, "workgroups of 64 x 64 x 1 invocations");
    GPU_FAILS(tsr_kernel_create(
                  gpu,
                  tsr_kernel_params(.glsl = "#version 450\n"
                                            "layout(local_size_x = 1) in;\n"
                                            "layout(binding = 0) buffer B { float v[]; } b;\n"
                                            "void main() { b.v[0] = 1; }\n"),
                  &kernel),
              TSR_ERR_INVALID, "declares a descriptor");
    ck_assert_ptr_null(kernel);
    if (!tsr_device_get_info(gpu)->int64)
        GPU_FAILS(
            tsr_kernel_create(
                gpu,
                tsr_kernel_params(
                        .glsl = "#version 450\n#extension GL_EXT_shader_explicit_arithmetic_types "
                                ": require\nlayout(local_size_x = 1) in;\n"
                                "layout(push_constant) uniform P { uint64_t a; uint64_t b; } p;\n"
                                "shared uint64_t s;\n"
                                "void main() { s = p.a * p.b; }\n"),
                &kernel),
            TSR_ERR_UNSUPPORTED, "64-bit integers");
}
END_TEST

/* Invalid SPIR-V ------------------------------------------------------------------------------- */

static void refuse(const uint32_t *words, uint64_t count, tsr_status status, const char *text)
{
    tsr_kernel *kernel = NULL;
    GPU_FAILS(
        tsr_kernel_create(gpu,
                          tsr_kernel_params(.spirv = words, .spirv_words = count, .tensor_count = 2,
                                            .scalar_bytes = 8, .name = "bad"),
                          &kernel),
        status, text);
    ck_assert_ptr_null(kernel);
}

static void refuse_changed(size_t at, uint32_t word, const char *text)
{
    uint32_t words[SAXPY_WORDS];
    memcpy(words, saxpy_spirv, sizeof words);
    words[at] = word;
    refuse(words, SAXPY_WORDS, TSR_ERR_INVALID, text);
}

START_TEST(spirv_garbage_is_refused)
{
    refuse(saxpy_spirv, 0, TSR_ERR_INVALID, "bad: 0 words are too few");
    refuse(saxpy_spirv, 5, TSR_ERR_INVALID, "5 words are too few");
    refuse(saxpy_spirv, SAXPY_WORDS - 1, TSR_ERR_INVALID, "its last function does not end");
    refuse_changed(SAXPY_WORDS - 1, 0x00020038, "an instruction of 2 words");
    refuse_changed(0, 0x03022307, "other byte order");
    refuse_changed(0, 0x464c457f, "not SPIR-V: the first word is 464c457f");
    refuse_changed(1, 0x00010600, "SPIR-V version word 00010600");
    refuse_changed(1, 0, "SPIR-V version word 00000000");
    refuse_changed(3, 0, "bound 0");
    refuse_changed(3, UINT32_MAX, "bound 4294967295");
    refuse_changed(4, 7, "schema 7");
    refuse_changed(5, 0, "an instruction of 0 words at word 5");
    refuse_changed(5, 0xffff0011, "an instruction of 65535 words at word 5");
}
END_TEST

/* An entry point for another stage than compute, or with another name than "main", is not
 * accepted. */
START_TEST(entry_point_is_needed)
{
    for (size_t at = 5; at < SAXPY_WORDS; at += saxpy_spirv[at] >> 16)
        if ((saxpy_spirv[at] & 0xffff) == 15) {
            refuse_changed(at + 1, 4, "no compute entry point called \"main\"");
            refuse_changed(at + 3, 0x6e69616e, "no compute entry point called \"main\"");
            return;
        }
    ck_abort_msg("the module has no entry point at all");
}
END_TEST

/* Truncates the module at every word, and changes random words. The check must return and not
 * crash. Only the check runs, because a module that passes it may still be invalid in ways that
 * only a driver detects. */
START_TEST(check_survives_anything)
{
    gpu_random random = {.state = 1};
    const tsr_device_info *info = tsr_device_get_info(gpu);
    for (uint64_t count = 0; count < SAXPY_WORDS; count++) {
        /* The memory has this size so that ASan reports reads past the end */
        uint32_t *words = malloc((size_t)count * sizeof *words + 1);
        ck_assert_ptr_nonnull(words);
        memcpy(words, saxpy_spirv, (size_t)count * sizeof *words);
        (void)!tsr__spirv_check(info, "cut", words, count, NULL, 0, 24);
        free(words);
    }
    for (int i = 0; i < 20000; i++) {
        uint32_t words[SAXPY_WORDS];
        memcpy(words, saxpy_spirv, sizeof words);
        words[gpu_random_u64(&random) % SAXPY_WORDS] = (uint32_t)gpu_random_u64(&random);
        (void)!tsr__spirv_check(info, "changed", words, SAXPY_WORDS, NULL, 0, 24);
    }
    uint32_t words[SAXPY_WORDS];
    memcpy(words, saxpy_spirv, sizeof words);
    for (size_t at = 5; at < SAXPY_WORDS; at += words[at] >> 16)
        for (uint32_t i = 2; (words[at] & 0xffff) == OP_TYPE_STRUCT && i < words[at] >> 16; i++)
            words[at + i] = words[at + 1];
    (void)!tsr__spirv_check(info, "made of itself", words, SAXPY_WORDS, NULL, 0, 24);
    GPU_OK(tsr__spirv_check(info, "whole", saxpy_spirv, SAXPY_WORDS, NULL, 0, 24));
}
END_TEST

/* Workgroup sizes given by constants ----------------------------------------------------------- */

/* Finds the instruction `op` of saxpy whose word number `n` is `word`. Returns the index in the
 * module of that instruction's word number `wanted`. */
static size_t find_word(uint32_t op, size_t n, uint32_t word, size_t wanted)
{
    for (size_t at = 5; at < SAXPY_WORDS; at += saxpy_spirv[at] >> 16)
        if ((saxpy_spirv[at] & 0xffff) == op && saxpy_spirv[at] >> 16 > n &&
            saxpy_spirv[at + n] == word)
            return at + wanted;
    ck_abort_msg("there is no such instruction");
    return 0;
}

static tsr_status create_wide(uint32_t workgroup, tsr_kernel **out)
{
    return tsr_kernel_create(gpu,
                             tsr_kernel_params(.spirv = saxpy_spirv, .spirv_words = SAXPY_WORDS,
                                               .tensor_count = 2, .scalar_bytes = 8,
                                               .constants = &workgroup, .constant_count = 1),
                             out);
}

START_TEST(workgroups_of_constants)
{
    const tsr_device_info *info = tsr_device_get_info(gpu);
    const uint32_t all = info->max_workgroup_invocations, max_x = info->max_workgroup_size[0];
    const uint32_t most = max_x < all ? max_x : all, sizes[] = {0, most + 1, 1u << 20, UINT32_MAX};
    char text[80];
    tsr_kernel *kernel = NULL;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(text, sizeof text, "kernel: workgroups of %u x 1 x 1 invocations; ",
                 (unsigned)sizes[i]);
        GPU_FAILS(create_wide(sizes[i], &kernel), TSR_ERR_INVALID, text);
        ck_assert_ptr_null(kernel);
    }
    GPU_OK(create_wide(most, &kernel));
    tsr_kernel_destroy(&kernel);
}
END_TEST

/* In this module, the workgroup size is %VECTOR = OpSpecConstantComposite %type %x %one %one. %x
 * is specialization constant 0; its default is in the module. */
START_TEST(workgroups_of_damaged_constants)
{
    const size_t decoration = find_word(71, 3, 25, 0); /* BuiltIn WorkgroupSize */
    const size_t vector = find_word(51, 2, saxpy_spirv[decoration + 1], 0);
    const uint32_t x = saxpy_spirv[vector + 3];
    const size_t constant = find_word(50, 2, x, 0), spec_id = find_word(71, 1, x, 2);
    ck_assert_uint_eq(saxpy_spirv[spec_id], 1);
    refuse_changed(constant + 3, 1u << 20, "bad: workgroups of 1048576 x 1 x 1 invocations");
    refuse_changed(constant + 3, 0, "workgroups of 0 x 1 x 1 invocations");
    refuse_changed(vector + 5, UINT32_MAX,
                   "a workgroup size is %4294967295, not a 32-bit constant");
    /* a vector instead of a scalar */
    refuse_changed(vector + 3, saxpy_spirv[vector + 2], "not a 32-bit constant");
    refuse_changed(vector + 2, 0, "not a vector of three constants");
    refuse_changed(decoration + 1, UINT32_MAX, "WorkgroupSize is %4294967295, not a vector");
    refuse_changed(decoration + 1, x, "not a vector of three constants");
    refuse_changed(constant + 2, 0, "not a 32-bit constant");
    uint32_t twice[SAXPY_WORDS + 4];
    memcpy(twice, saxpy_spirv, (decoration + 4) * sizeof *twice);
    memcpy(twice + decoration + 4, saxpy_spirv + decoration,
           (SAXPY_WORDS - decoration) * sizeof *twice);
    refuse(twice, SAXPY_WORDS + 4, TSR_ERR_INVALID, "it sets the workgroup size twice");
}
END_TEST

/* The workgroup size is x, 2 and 2 + 2, where x is specialization constant 3, by default 8. */
static const uint32_t size_by_mode[] = {
    0x07230203,    0x00010500, 0,  10,         0,    /* header */
    2 << 16 | 17,  1,                                /* OpCapability Shader */
    3 << 16 | 14,  0,          1,                    /* OpMemoryModel Logical GLSL450 */
    5 << 16 | 15,  5,          1,  0x6e69616d, 0,    /* OpEntryPoint GLCompute %1 "main" */
    6 << 16 | 331, 1,          38, 2,          3, 4, /* OpExecutionModeId %1 LocalSizeId %2 %3 %4 */
    4 << 16 | 71,  2,          1,  3,                /* OpDecorate %2 SpecId 3 */
    4 << 16 | 21,  5,          32, 0,                /* %5 = OpTypeInt 32 0 */
    4 << 16 | 50,  5,          2,  8,                /* %2 = OpSpecConstant %5 8 */
    4 << 16 | 43,  5,          3,  2,                /* %3 = OpConstant %5 2 */
    6 << 16 | 52,  5,          4,  128,        3, 3, /* %4 = OpSpecConstantOp %5 IAdd %3 %3 */
};
enum { MODE_WORDS = sizeof size_by_mode / sizeof *size_by_mode };

START_TEST(workgroups_by_mode)
{
    const tsr_device_info *info = tsr_device_get_info(gpu);
    const uint32_t constants[] = {0, 0, 0, 1u << 20};
    gpu_random random = {.state = 1};
    uint32_t words[MODE_WORDS];
    GPU_OK(tsr__spirv_check(info, "m", size_by_mode, MODE_WORDS, NULL, 0, 0));
    GPU_OK(tsr__spirv_check(info, "m", size_by_mode, MODE_WORDS, constants, 3, 0));
    GPU_FAILS(tsr__spirv_check(info, "m", size_by_mode, MODE_WORDS, constants, 4, 0),
              TSR_ERR_INVALID, "m: workgroups of 1048576 x 2 x 1 invocations");
    memcpy(words, size_by_mode, sizeof words);
    words[18] = 5; /* the ID of a type instead of a constant */
    GPU_FAILS(tsr__spirv_check(info, "m", words, MODE_WORDS, NULL, 0, 0), TSR_ERR_INVALID,
              "a workgroup size is %5, not a 32-bit constant");
    for (uint64_t count = 0; count < MODE_WORDS; count++) {
        /* The memory has this size so that ASan reports reads past the end */
        uint32_t *cut = malloc((size_t)count * sizeof *cut + 1);
        ck_assert_ptr_nonnull(cut);
        memcpy(cut, size_by_mode, (size_t)count * sizeof *cut);
        (void)!tsr__spirv_check(info, "cut", cut, count, constants, 4, 0);
        free(cut);
    }
    for (int i = 0; i < 50000; i++) {
        memcpy(words, size_by_mode, sizeof words);
        for (int changes = 0; changes <= i % 3; changes++)
            words[gpu_random_u64(&random) % MODE_WORDS] =
                (uint32_t)gpu_random_u64(&random) >> gpu_random_u64(&random) % 32;
        (void)!tsr__spirv_check(info, "changed", words, MODE_WORDS, constants, 4, 0);
    }
}
END_TEST

/* Refused arguments ---------------------------------------------------------------------------- */

START_TEST(create_errors)
{
    tsr_kernel *kernel = NULL;
    const uint32_t constants[32] = {64};
    const tsr_kernel_params good = {
        .struct_size = sizeof good, .spirv = saxpy_spirv, .spirv_words = SAXPY_WORDS};
    GPU_FAILS(tsr_kernel_create(NULL, &good, &kernel), TSR_ERR_INVALID, "device is NULL");
    GPU_FAILS(tsr_kernel_create(gpu, NULL, &kernel), TSR_ERR_INVALID, "params is NULL");
    GPU_FAILS(tsr_kernel_create(gpu, &good, NULL), TSR_ERR_INVALID, "out is NULL");
#define CREATE_FAILS(status, words, ...)                                                           \
    GPU_FAILS(tsr_kernel_create(gpu,                                                               \
                                tsr_kernel_params(.name = "k", .spirv = saxpy_spirv,               \
                                                  .spirv_words = SAXPY_WORDS, __VA_ARGS__),        \
                                &kernel),                                                          \
              status, words)
    CREATE_FAILS(TSR_ERR_INVALID, "k: both of glsl and spirv", .glsl = saxpy_glsl);
    CREATE_FAILS(TSR_ERR_INVALID, "k: tensor_count is -1", .tensor_count = -1);
    CREATE_FAILS(TSR_ERR_INVALID, "k: scalar_bytes is 7, not a multiple of 4", .scalar_bytes = 7);
    CREATE_FAILS(
        TSR_ERR_UNSUPPORTED,
        "k: 16 tensors and 4 bytes of scalars are 132 bytes of push constants; there are 128",
        .tensor_count = 16, .scalar_bytes = 4);
    CREATE_FAILS(TSR_ERR_UNSUPPORTED, "k: 0 tensors and 4294967292 bytes",
                 .scalar_bytes = 4294967292);
    CREATE_FAILS(TSR_ERR_UNSUPPORTED, "k: 2147483647 tensors", .tensor_count = INT32_MAX);
    CREATE_FAILS(TSR_ERR_INVALID, "k: constant_count is -1", .constant_count = -1);
    CREATE_FAILS(TSR_ERR_INVALID, "k: constant_count is 25; 0 to 24", .constants = constants,
                 .constant_count = 25);
    CREATE_FAILS(TSR_ERR_INVALID, "k: constant_count is 1 but constants is NULL",
                 .constant_count = 1);
    CREATE_FAILS(TSR_ERR_INVALID, "k: subgroup_size is 12, not a power of two",
                 .subgroup_size = 12);
    CREATE_FAILS(TSR_ERR_UNSUPPORTED, "k: subgroup_size is 2048; ", .subgroup_size = 2048);
#undef CREATE_FAILS
    GPU_FAILS(tsr_kernel_create(gpu, tsr_kernel_params(.tensor_count = 1), &kernel),
              TSR_ERR_INVALID, "kernel: none of glsl and spirv");
    ck_assert_ptr_null(kernel);
}
END_TEST

START_TEST(run_errors)
{
    tsr_device *other_device = NULL;
    tsr_tensor *far = NULL;
    tsr_stream *far_queue = NULL;
    GPU_OK(tsr_device_open(NULL, &other_device));
    GPU_OK(tsr_tensor_create(other_device, TSR_F32, 1, (const int64_t[]){4}, &far));
    GPU_OK(tsr_stream_create(other_device, &far_queue));

    tsr_kernel *kernel = create_saxpy(64, 1);
    tsr_tensor *x = gpu_new(TSR_F32, 1, (const int64_t[]){4});
    const tsr_kernel_argument good[] = {tsr_kernel_argument(.tensor = x),
                                        tsr_kernel_argument(.tensor = x, .written = true)};
    const tsr_kernel_argument absent[] = {tsr_kernel_argument(.tensor = x),
                                          tsr_kernel_argument(.tensor = NULL)};
    const tsr_kernel_argument foreign[] = {tsr_kernel_argument(.tensor = far),
                                           tsr_kernel_argument(.tensor = x)};
    const scalars scalar = {4, 1};
    const uint32_t one[] = {1, 1, 1};
    GPU_FAILS(tsr_kernel_run(NULL, kernel, good, &scalar, one), TSR_ERR_INVALID, "stream is NULL");
    GPU_FAILS(tsr_kernel_run(queue, NULL, good, &scalar, one), TSR_ERR_INVALID, "kernel is NULL");
    GPU_FAILS(tsr_kernel_run(queue, kernel, NULL, &scalar, one), TSR_ERR_INVALID,
              "kernel: arguments is NULL; it has 2 tensors");
    GPU_FAILS(tsr_kernel_run(queue, kernel, good, NULL, one), TSR_ERR_INVALID,
              "kernel: scalars is NULL; it has 8 bytes of them");
    GPU_FAILS(tsr_kernel_run(queue, kernel, good, &scalar, NULL), TSR_ERR_INVALID,
              "groups is NULL");
    GPU_FAILS(tsr_kernel_run(queue, kernel, absent, &scalar, one), TSR_ERR_INVALID,
              "argument 1 is NULL");
    GPU_FAILS(tsr_kernel_run(queue, kernel, foreign, &scalar, one), TSR_ERR_INVALID,
              "argument 0 is on device");
    GPU_FAILS(tsr_kernel_run(far_queue, kernel, good, &scalar, one), TSR_ERR_INVALID,
              "the stream on another device");
    /* arguments of other sizes */
    struct longer {
        tsr_kernel_argument known;
        uint64_t more;
    } longer[2] = {{tsr_kernel_argument(.tensor = x), 0}, {good[1], 0}};
    longer[0].known.struct_size = longer[1].known.struct_size = sizeof longer[0];
    GPU_OK(tsr_kernel_run(queue, kernel, &longer[0].known, &scalar, one));
    longer[1].more = 1;
    GPU_FAILS(tsr_kernel_run(queue, kernel, &longer[0].known, &scalar, one), TSR_ERR_INVALID,
              "element 1: tsr_kernel_argument");
    struct shorter {
        size_t struct_size;
        tsr_tensor *tensor;
    } shorter[2] = {{sizeof shorter[0], x}, {sizeof shorter[0], x}};
    const scalars nothing = {0, 1}; /* no tensor is declared as written */
    GPU_OK(tsr_kernel_run(queue, kernel, (const tsr_kernel_argument *)(const void *)shorter,
                          &nothing, one));
    const tsr_kernel_argument unset[] = {{.tensor = x}, {.tensor = x, .written = true}};
    GPU_FAILS(tsr_kernel_run(queue, kernel, unset, &scalar, one), TSR_ERR_INVALID,
              "tsr_kernel_argument: struct_size is 0");
    for (int i = 0; i < 3; i++) {
        uint32_t limit = tsr_device_get_info(gpu)->max_workgroup_count[i];
        if (limit == UINT32_MAX)
            continue;
        uint32_t groups[] = {1, 1, 1};
        groups[i] = limit + 1;
        GPU_FAILS(tsr_kernel_run(queue, kernel, good, &scalar, groups), TSR_ERR_INVALID, "groups[");
    }
    GPU_OK(tsr_kernel_run(queue, kernel, good, &scalar, one));
    tsr_tensor_destroy(&x);
    tsr_kernel_destroy(&kernel);
    tsr_stream_destroy(&far_queue);
    tsr_tensor_destroy(&far);
    tsr_device_close(&other_device);
}
END_TEST

TESTS(kernel)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, spirv_with_constants);
    tcase_add_test(tests, subgroups_of_a_size);
    tcase_add_test(tests, ordered_with_other_work);
    tcase_add_test(tests, any_order_of_destruction);
    tcase_add_test(tests, kernel_outlives_everything);
    tcase_add_test(tests, address_of_a_view);
    tcase_add_test(tests, nothing_to_run);
    tcase_add_test(tests, extremes_of_push_constants);
    tcase_add_loop_test(tests, blocks_of_push_constants, 0, (int)(sizeof blocks / sizeof *blocks));
    tcase_add_test(tests, glsl_runs);
    tcase_add_test(tests, glsl_messages_are_in_the_error);
    tcase_add_test(tests, what_the_device_lacks);
    tcase_add_test(tests, spirv_garbage_is_refused);
    tcase_add_test(tests, entry_point_is_needed);
    tcase_add_test(tests, check_survives_anything);
    tcase_add_test(tests, workgroups_of_constants);
    tcase_add_test(tests, workgroups_of_damaged_constants);
    tcase_add_test(tests, workgroups_by_mode);
    tcase_add_test(tests, create_errors);
    tcase_add_test(tests, run_errors);
}
