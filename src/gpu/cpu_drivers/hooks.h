/* The functions of the table in cpu_drivers.h, which says what they do. */
#ifndef TSR_GPU_CPU_DRIVERS_HOOKS_H
#define TSR_GPU_CPU_DRIVERS_HOOKS_H

#include "gpu/cpu_drivers/cpu_drivers.h"

const tsr__matmul_config *tsr__cpu_matmul_choose(const tsr__matmul_device *device,
                                                 const tsr__matmul_problem *problem);
bool tsr__cpu_quant_rows_suit(const tsr__matmul_call *call);
tsr_status tsr__cpu_quant_rows(const tsr__matmul_call *call);
tsr_status tsr__cpu_dequantize(tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *x,
                               bool *done);
tsr_status tsr__cpu_matmul_grouped(tsr_stream *stream, const tsr__grouped *call, bool *done);

tsr_status tsr__cpu_attention(const tsr__attention *call, bool *done);
tsr_status tsr__cpu_attention_grad(const tsr__attention *call, bool *done);

tsr_status tsr__cpu_elementwise(tsr_stream *stream, const tsr__elementwise *work,
                                const tsr_tensor *operands, int count, const tsr__piece *piece,
                                tsr__piece *rest);
tsr_status tsr__cpu_copy(tsr_stream *stream, const tsr_tensor *dst, const tsr_tensor *src,
                         const tsr__piece *piece, tsr__piece *rest);
tsr_status tsr__cpu_optimizer(const tsr__optimizer_step *step, int operands,
                              const tsr__piece *piece, tsr__piece *rest);

tsr_status tsr__cpu_embedding(tsr__dispatches *list, const tsr_tensor *y, const tsr_tensor *table,
                              const tsr_tensor *indices, int64_t first, bool *done);
tsr_status tsr__cpu_softmax(tsr__dispatches *list, tsr_stream *stream, uint32_t function,
                            const tsr_tensor *const tensors[3], const tsr__piece *piece,
                            bool *done);
tsr_status tsr__cpu_cross_entropy(tsr__dispatches *list, tsr_stream *stream,
                                  const tsr__cross_entropy *call, bool *done);

bool tsr__cpu_reduce_rows_suit(const tsr__reduction *r);
tsr_status tsr__cpu_reduce_rows(tsr__dispatches *list, const tsr__reduction *r);
bool tsr__cpu_reduce_columns_suit(const tsr__reduction *r);
tsr_status tsr__cpu_reduce_columns(tsr__dispatches *list, const tsr__reduction *r, uint64_t slices,
                                   tsr__access access);
uint64_t tsr__cpu_reduce_columns_bytes(const tsr_device *device, int64_t rows, int64_t count,
                                       int64_t chunk);

tsr__norm_kernels tsr__cpu_norm_kernels(const tsr__norm *norm, const tsr__norm_plane *plane,
                                        uint32_t output);
tsr_status tsr__cpu_norm_short(tsr__dispatches *list, const tsr__norm *norm,
                               const tsr__norm_plane *plane, uint32_t output, tsr__buffer *scratch);
bool tsr__cpu_norm_short_sums_suit(const tsr__norm *norm, const tsr__norm_plane *plane);
uint32_t tsr__cpu_norm_short_partials(const tsr__norm *norm, const tsr__norm_plane *plane);
tsr_status tsr__cpu_norm_short_sums(tsr__dispatches *list, const tsr__norm *norm,
                                    const tsr__norm_plane *plane, bool dx,
                                    const tsr_tensor *dweight, const tsr_tensor *dbias);
uint64_t tsr__cpu_norm_chunks_bytes(const tsr__norm *norm, const tsr__norm_plane *plane);
tsr_status tsr__cpu_norm_chunks_stats(tsr__dispatches *list, const tsr__norm *norm,
                                      const tsr__norm_plane *plane, uint32_t output,
                                      tsr__buffer *scratch, tsr__buffer *stats);
tsr_status tsr__cpu_norm_chunks(tsr__dispatches *list, const tsr__norm *norm,
                                const tsr__norm_plane *plane, uint32_t output, tsr__buffer *scratch,
                                tsr__buffer *stats, tsr__buffer *products);

#endif
