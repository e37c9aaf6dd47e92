// The tile of y that a workgroup computes, for kernels whose workgroups compute one tile each.
#ifndef TESSERA_MATMUL_TILE_GLSL
#define TESSERA_MATMUL_TILE_GLSL

// The number of tiles of bm × bn elements in y. A dispatch may have more workgroups than tiles.
uint mm_tiles(uint bm, uint bn)
{
    return (p.n + bn - 1) / bn * ((p.m + bm - 1) / bm);
}

// The row and the column of the first element of tile `number`. Tiles are numbered in bands that are
// BAND tiles high, a constant of the including file, column by column within a band. Workgroups that
// run at the same time then share rows of a and columns of b.
uvec2 mm_tile_at(uint number, uint bm, uint bn)
{
    uint across = (p.n + bn - 1) / bn;
    uint down = (p.m + bm - 1) / bm;
    uint band = number / (BAND * across);
    uint band_height = min(BAND, down - band * BAND);
    uint in_band = number % (BAND * across);
    return uvec2((band * BAND + in_band % band_height) * bm, in_band / band_height * bn);
}

#endif
