; 1: map
define internal void @body(i64 %n0, ptr noalias %p0, ptr noalias %p1, i64 %s0_0, i64 %s1_0, i64 %c0, i64 %c1, i64 %c2, i64 %c3) nounwind noinline {
entry:
  %v1 = trunc i64 %c0 to i32
  %v2 = bitcast i32 %v1 to float
  %v3 = trunc i64 %c1 to i32
  %v4 = bitcast i32 %v3 to float
  %v5 = trunc i64 %c2 to i32
  %v6 = bitcast i32 %v5 to float
  %v7 = trunc i64 %c3 to i32
  %v8 = bitcast i32 %v7 to float
  %v10 = icmp slt i64 0, %n0
  br i1 %v10, label %body9, label %done9
body9:
  %i9 = phi i64 [ 0, %entry ], [ %v37, %body9 ]
  %v11 = getelementptr inbounds float, ptr %p0, i64 %i9
  %v12 = load float, ptr %v11, align 4
  %v13 = fmul float %v12, %v12
  %v14 = fmul float %v12, %v13
  %v15 = fmul float %v2, %v14
  %v16 = fadd float %v12, %v15
  %v17 = fmul float %v4, %v16
  %v18 = call float @llvm.maximum.f32(float %v17, float 0xC0220A3D80000000)
  %v19 = call float @llvm.minimum.f32(float %v18, float 0x40220A3D80000000)
  %v20 = fmul float %v19, %v19
  %v21 = fmul float %v20, %v20
  %v22 = call float @llvm.fma.f32(float 0x3EF5954BE0000000, float %v20, float 0x3F6C9F8060000000)
  %v23 = call float @llvm.fma.f32(float 0x3E4C9A21E0000000, float %v21, float %v22)
  %v24 = call float @llvm.fma.f32(float 0x3FC1204360000000, float %v20, float 0x3FF0000000000000)
  %v25 = call float @llvm.fma.f32(float %v23, float %v21, float %v24)
  %v26 = fmul float %v19, %v25
  %v27 = fmul float %v20, %v20
  %v28 = call float @llvm.fma.f32(float 0x3F35841720000000, float %v20, float 0x3F9A7DEFE0000000)
  %v29 = call float @llvm.fma.f32(float 0x3EAA0B7440000000, float %v27, float %v28)
  %v30 = call float @llvm.fma.f32(float 0x3FDDE57640000000, float %v20, float 0x3FF0000000000000)
  %v31 = call float @llvm.fma.f32(float %v29, float %v27, float %v30)
  %v32 = fdiv float %v26, %v31
  %v33 = fadd float %v6, %v32
  %v34 = fmul float %v8, %v33
  %v35 = fmul float %v12, %v34
  %v36 = getelementptr inbounds float, ptr %p1, i64 %i9
  store float %v35, ptr %v36, align 4
  %v37 = add nuw nsw i64 %i9, 1
  %v38 = icmp slt i64 %v37, %n0
  br i1 %v38, label %body9, label %done9, !llvm.loop !0
done9:
  ret void
}
!0 = distinct !{!0, !1, !2}
!1 = !{!"llvm.loop.vectorize.enable", i1 true}
!2 = !{!"llvm.loop.interleave.count", i32 4}
define void @kernel(i64 %lo, i64 %hi, ptr noalias %args, ptr noalias %buffers) nounwind {
entry:
  %v1 = load i64, ptr %args, align 8
  %v2 = getelementptr inbounds i64, ptr %args, i64 1
  %v3 = load i64, ptr %v2, align 8
  %v4 = getelementptr inbounds ptr, ptr %buffers, i64 %v3
  %v5 = load ptr, ptr %v4, align 8
  %v6 = getelementptr inbounds i64, ptr %args, i64 2
  %v7 = load i64, ptr %v6, align 8
  %v8 = getelementptr i8, ptr %v5, i64 %v7
  %v9 = getelementptr inbounds i64, ptr %args, i64 3
  %v10 = load i64, ptr %v9, align 8
  %v11 = getelementptr inbounds i64, ptr %args, i64 4
  %v12 = load i64, ptr %v11, align 8
  %v13 = getelementptr inbounds ptr, ptr %buffers, i64 %v12
  %v14 = load ptr, ptr %v13, align 8
  %v15 = getelementptr inbounds i64, ptr %args, i64 5
  %v16 = load i64, ptr %v15, align 8
  %v17 = getelementptr i8, ptr %v14, i64 %v16
  %v18 = getelementptr inbounds i64, ptr %args, i64 6
  %v19 = load i64, ptr %v18, align 8
  %v20 = getelementptr inbounds i64, ptr %args, i64 7
  %v21 = load i64, ptr %v20, align 8
  %v22 = getelementptr inbounds i64, ptr %args, i64 8
  %v23 = load i64, ptr %v22, align 8
  %v24 = getelementptr inbounds i64, ptr %args, i64 9
  %v25 = load i64, ptr %v24, align 8
  %v26 = getelementptr inbounds i64, ptr %args, i64 10
  %v27 = load i64, ptr %v26, align 8
  %v28 = sub nsw i64 %hi, %lo
  %v29 = mul nsw i64 %lo, %v10
  %v30 = getelementptr i8, ptr %v8, i64 %v29
  %v31 = mul nsw i64 %lo, %v19
  %v32 = getelementptr i8, ptr %v17, i64 %v31
  call void @body(i64 %v28, ptr %v30, ptr %v32, i64 %v10, i64 %v19, i64 %v21, i64 %v23, i64 %v25, i64 %v27)
  ret void
}
