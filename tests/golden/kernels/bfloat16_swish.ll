; 1: map
define internal void @body(i64 %n0, ptr noalias %p0, ptr noalias %p1, i64 %s0_0, i64 %s1_0) nounwind noinline {
entry:
  %v2 = icmp slt i64 0, %n0
  br i1 %v2, label %body1, label %done1
body1:
  %i1 = phi i64 [ 0, %entry ], [ %v43, %body1 ]
  %v3 = getelementptr inbounds i16, ptr %p0, i64 %i1
  %v4 = load i16, ptr %v3, align 2
  %v5 = zext i16 %v4 to i32
  %v6 = shl i32 %v5, 16
  %v7 = bitcast i32 %v6 to float
  %v8 = call float @llvm.maximum.f32(float %v7, float 0xC05A1999A0000000)
  %v9 = call float @llvm.minimum.f32(float %v8, float 0x4033800000000000)
  %v10 = call float @llvm.fma.f32(float %v9, float 0xBFF7154760000000, float 0x4168000000000000)
  %v11 = fsub float %v10, 0x4168000000000000
  %v12 = bitcast float %v10 to i32
  %v13 = call float @llvm.fma.f32(float %v11, float 0x3FE62E4000000000, float %v9)
  %v14 = call float @llvm.fma.f32(float %v11, float 0x3EB7F7D1C0000000, float %v13)
  %v15 = fmul float %v14, %v14
  %v16 = fneg float %v15
  %v17 = fmul float %v14, %v14
  %v18 = call float @llvm.fma.f32(float 0xBF8123B820000000, float %v14, float 0x3FA5558E60000000)
  %v19 = call float @llvm.fma.f32(float 0x3F56A36720000000, float %v17, float %v18)
  %v20 = call float @llvm.fma.f32(float 0xBFC5554900000000, float %v14, float 0x3FDFFFFFC0000000)
  %v21 = call float @llvm.fma.f32(float %v19, float %v17, float %v20)
  %v22 = call float @llvm.fma.f32(float %v16, float %v21, float %v14)
  %v23 = shl i32 %v12, 23
  %v24 = add i32 %v23, 855638016
  %v25 = bitcast i32 %v24 to float
  %v26 = fneg float %v25
  %v27 = call float @llvm.fma.f32(float %v26, float %v22, float 0x3E60000000000000)
  %v28 = fadd float %v25, %v27
  %v29 = fdiv float 0x3E60000000000000, %v28
  %v30 = fmul float %v7, %v29
  %v31 = bitcast float %v30 to i32
  %v32 = lshr i32 %v31, 16
  %v33 = and i32 %v32, 1
  %v34 = add i32 %v31, 32767
  %v35 = add i32 %v34, %v33
  %v36 = or i32 %v31, 4194304
  %v37 = fcmp une float %v30, %v30
  %v38 = select i1 %v37, i32 %v36, i32 %v35
  %v39 = and i32 %v38, 4294901760
  %v40 = lshr i32 %v39, 16
  %v41 = trunc i32 %v40 to i16
  %v42 = getelementptr inbounds i16, ptr %p1, i64 %i1
  store i16 %v41, ptr %v42, align 2
  %v43 = add nuw nsw i64 %i1, 1
  %v44 = icmp slt i64 %v43, %n0
  br i1 %v44, label %body1, label %done1, !llvm.loop !0
done1:
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
  %v20 = sub nsw i64 %hi, %lo
  %v21 = mul nsw i64 %lo, %v10
  %v22 = getelementptr i8, ptr %v8, i64 %v21
  %v23 = mul nsw i64 %lo, %v19
  %v24 = getelementptr i8, ptr %v17, i64 %v23
  call void @body(i64 %v20, ptr %v22, ptr %v24, i64 %v10, i64 %v19)
  ret void
}
