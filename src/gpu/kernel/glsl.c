/* Compiles GLSL at run time, if the build has libshaderc. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "gpu/kernel/glsl.h"
#include "tsr_config.h"

#if TSR__HAVE_SHADERC

#include <shaderc/shaderc.h>

/* Copies the result's words to memory that the caller can free with tsr__free. */
static tsr_status take(const char *name, shaderc_compilation_result_t result, uint32_t **out,
                       uint64_t *out_count)
{
    if (shaderc_result_get_compilation_status(result) != shaderc_compilation_status_success) {
        const char *text = shaderc_result_get_error_message(result);
        int length = (int)strlen(text);
        while (length > 0 && text[length - 1] == '\n')
            length--;
        return tsr__fail(TSR_ERR_INVALID, "%s does not compile: %.*s", name, length, text);
    }
    size_t size = shaderc_result_get_length(result);
    uint32_t *words = tsr__calloc(size / sizeof *words + 1, sizeof *words);
    if (!words)
        return TSR_ERR_NO_MEMORY;
    memcpy(words, shaderc_result_get_bytes(result), size);
    *out = words;
    *out_count = size / sizeof *words;
    return TSR_OK;
}

static tsr_status compile(shaderc_compiler_t compiler, shaderc_compile_options_t options,
                          const char *name, const char *glsl, uint32_t **out, uint64_t *out_count)
{
    if (!compiler || !options)
        return tsr__fail(TSR_ERR_NO_MEMORY, "%s: the GLSL compiler does not start", name);
    shaderc_compile_options_set_target_env(options, shaderc_target_env_vulkan,
                                           shaderc_env_version_vulkan_1_2);
    shaderc_compilation_result_t result = shaderc_compile_into_spv(
        compiler, glsl, strlen(glsl), shaderc_glsl_compute_shader, name, "main", options);
    if (!result)
        return tsr__fail(TSR_ERR_NO_MEMORY, "%s: the GLSL compiler is out of memory", name);
    tsr_status status = take(name, result, out, out_count);
    shaderc_result_release(result);
    return status;
}

tsr_status tsr__glsl_compile(const char *name, const char *glsl, uint32_t **out,
                             uint64_t *out_count)
{
    /* Without a #version line, the compiler (glslang in shaderc) would assume version 110 and print
     * a warning to stdout. */
    TSR__REQUIRE(strstr(glsl, "#version"), "%s does not compile: there is no #version line", name);
    shaderc_compiler_t compiler = shaderc_compiler_initialize();
    shaderc_compile_options_t options = shaderc_compile_options_initialize();
    tsr_status status = compile(compiler, options, name, glsl, out, out_count);
    shaderc_compile_options_release(options);
    shaderc_compiler_release(compiler);
    return status;
}

#else

tsr_status tsr__glsl_compile(const char *name, const char *glsl, uint32_t **out,
                             uint64_t *out_count)
{
    (void)glsl;
    (void)out;
    (void)out_count;
    return tsr__fail(TSR_ERR_UNSUPPORTED,
                     "%s: this build has no GLSL compiler (it was configured without shaderc); "
                     "pass SPIR-V",
                     name);
}

#endif
