; relu(x @ w) for x [8, 16] and w [16, 16], all f32: one tile, three engines
ld region=w dtype=f32 addr=0x0 row=0x0 rows=16 cols=16 space=s stride=16
ld region=i dtype=f32 addr=0x0 row=0x10 rows=8 cols=16 space=s stride=16 !push.x
gemm dtype=f32 a=0x10 t=8 b=0x0 k=16 c=0x0 n=16 !pop.l
ewu fn=relu dst=0x0 rows=8 src=0x0 cols=16 !push.s
st region=o dtype=f32 addr=0x0 row=0x0 rows=8 cols=16 space=a stride=16 !pop.x
halt status=0
