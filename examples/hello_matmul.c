#include <stdio.h>
#include <tessera/tessera.h>

int main(void)
{
    const float a[2 * 3] = {1, 2, 3, 4, 5, 6}, b[3 * 2] = {1, 0, 0, 1, 1, 1};
    const int64_t a_shape[] = {2, 3}, b_shape[] = {3, 2}, y_shape[] = {2, 2};
    float y[2 * 2];
    tsr_device *device = NULL;
    tsr_stream *stream = NULL;
    tsr_tensor *ta = NULL, *tb = NULL, *ty = NULL;

    int failed =
        tsr_device_open(NULL, &device) || tsr_stream_create(device, &stream) ||
        tsr_tensor_create(device, TSR_F32, 2, a_shape, &ta) ||
        tsr_tensor_create(device, TSR_F32, 2, b_shape, &tb) ||
        tsr_tensor_create(device, TSR_F32, 2, y_shape, &ty) ||
        tsr_tensor_upload(stream, ta, a, sizeof a) || tsr_tensor_upload(stream, tb, b, sizeof b) ||
        tsr_matmul(stream, ty, ta, tb, NULL) || tsr_tensor_download(stream, ty, y, sizeof y);
    if (failed)
        fprintf(stderr, "%s\n", tsr_last_error());
    else
        printf("%g %g\n%g %g\n", y[0], y[1], y[2], y[3]); /* 4 5 / 10 11 */
    if (fflush(stdout) != 0) {
        perror("standard output");
        failed = 1;
    }

    tsr_tensor_destroy(&ty);
    tsr_tensor_destroy(&tb);
    tsr_tensor_destroy(&ta);
    tsr_stream_destroy(&stream);
    tsr_device_close(&device);
    return failed;
}
