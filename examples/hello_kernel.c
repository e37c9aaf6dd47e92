#include <stdio.h>
#include <tessera/tessera.h>

/* y = scale · x for two matrices with any strides. */
static const char source[] =
    "#version 450\n"
    "#extension GL_EXT_buffer_reference : require\n"
    "layout(local_size_x = 8, local_size_y = 8) in;\n"
    "layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float v[]; };\n"
    "layout(push_constant) uniform Params {\n"
    "    Floats x, y;\n" /* tensors first, then scalars */
    "    uint rows, columns, x_strides[2], y_strides[2];\n"
    "    float scale;\n"
    "} p;\n"
    "void main()\n"
    "{\n"
    "    uint r = gl_GlobalInvocationID.y, c = gl_GlobalInvocationID.x;\n"
    "    if (r < p.rows && c < p.columns)\n"
    "        p.y.v[r * p.y_strides[0] + c * p.y_strides[1]] =\n"
    "            p.scale * p.x.v[r * p.x_strides[0] + c * p.x_strides[1]];\n"
    "}\n";

typedef struct scalars {
    uint32_t rows, columns, x_strides[2], y_strides[2];
    float scale;
} scalars;

static tsr_status run(tsr_stream *stream, tsr_kernel *kernel, tsr_tensor *y, tsr_tensor *x)
{
    const tsr_layout *lx = tsr_tensor_layout(x), *ly = tsr_tensor_layout(y);
    scalars s = {(uint32_t)lx->shape[0], (uint32_t)lx->shape[1], .scale = 10};
    for (int i = 0; i < 2; i++) {
        s.x_strides[i] = (uint32_t)lx->strides[i];
        s.y_strides[i] = (uint32_t)ly->strides[i];
    }
    return tsr_kernel_run(
        stream, kernel,
        (tsr_kernel_argument[]){tsr_kernel_argument(.tensor = x),
                                tsr_kernel_argument(.tensor = y, .written = true)},
        &s, (uint32_t[]){(s.columns + 7) / 8, (s.rows + 7) / 8, 1});
}

int main(void)
{
    float a[2 * 4] = {1, 2, 3, 4, 5, 6, 7, 8}, b[2 * 2];
    tsr_device *device = NULL;
    tsr_stream *stream = NULL;
    tsr_kernel *kernel = NULL;
    tsr_tensor *x = NULL, *every_other = NULL, *view = NULL, *y = NULL;

    int failed =
        tsr_device_open(NULL, &device) || tsr_stream_create(device, &stream) ||
        tsr_kernel_create(device,
                          tsr_kernel_params(.glsl = source, .name = "scale", .tensor_count = 2,
                                            .scalar_bytes = sizeof(scalars)),
                          &kernel) ||
        tsr_tensor_create(device, TSR_F32, 2, (int64_t[]){2, 4}, &x) ||
        tsr_tensor_create(device, TSR_F32, 2, (int64_t[]){2, 2}, &y) ||
        tsr_tensor_slice(x, 1, 0, TSR_END, 2, &every_other) ||
        tsr_tensor_transpose(every_other, 0, 1, &view) ||
        tsr_tensor_upload(stream, x, a, sizeof a) || run(stream, kernel, y, view) ||
        tsr_tensor_download(stream, y, b, sizeof b);
    if (failed)
        fprintf(stderr, "%s\n", tsr_last_error());
    else
        printf("%g %g\n%g %g\n", b[0], b[1], b[2], b[3]); /* 10 50 / 30 70 */
    if (fflush(stdout) != 0) {
        perror("standard output");
        failed = 1;
    }

    tsr_tensor_destroy(&view);
    tsr_tensor_destroy(&every_other);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    tsr_kernel_destroy(&kernel);
    tsr_stream_destroy(&stream);
    tsr_device_close(&device);
    return failed || b[1] != 50 || b[2] != 30;
}
