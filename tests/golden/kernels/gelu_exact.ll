; 1: map
define internal void @body(i64 %n0, ptr noalias %p0, ptr noalias %p1, i64 %s0_0, i64 %s1_0, i64 %c0, i64 %c1) nounwind noinline {
entry:
  %v1 = trunc i64 %c0 to i32
  %v2 = bitcast i32 %v1 to float
  %v3 = trunc i64 %c1 to i32
  %v4 = bitcast i32 %v3 to float
  %v6 = icmp slt i64 0, %n0
  br i1 %v6, label %body5, label %done5
body5:
  %i5 = phi i64 [ 0, %entry ], [ %v52, %body5 ]
  %v7 = getelementptr inbounds float, ptr %p0, i64 %i5
  %v8 = load float, ptr %v7, align 4
  %v9 = fmul float %v2, %v8
  %v10 = fneg float %v8
  %v11 = fmul float %v10, %v4
  %v12 = call float @llvm.fabs.f32(float %v11)
  %v13 = call float @llvm.minimum.f32(float %v12, float 0x4024333340000000)
  %v14 = fmul float %v13, %v13
  %v15 = fmul float %v13, %v13
  %v16 = call float @llvm.fma.f32(float 0x3BCCE3A660000000, float %v13, float 0x3BE72CA6C0000000)
  %v17 = call float @llvm.fma.f32(float 0x3BA06A27C0000000, float %v15, float %v16)
  %v18 = call float @llvm.fma.f32(float 0x3BF3B37E60000000, float %v13, float 0x3BF0000000000000)
  %v19 = call float @llvm.fma.f32(float %v17, float %v15, float %v18)
  %v20 = fmul float %v13, %v13
  %v21 = call float @llvm.fma.f32(float 0x3FAD180480000000, float %v13, float 0x3FD99AB780000000)
  %v22 = call float @llvm.fma.f32(float 0x3FF4FC1C40000000, float %v13, float 0x4003183A80000000)
  %v23 = call float @llvm.fma.f32(float %v21, float %v20, float %v22)
  %v24 = call float @llvm.fma.f32(float 0x4002E0AB20000000, float %v13, float 0x3FF0000000000000)
  %v25 = call float @llvm.fma.f32(float %v23, float %v20, float %v24)
  %v26 = fdiv float %v19, %v25
  %v27 = call float @llvm.fma.f32(float %v14, float 0x3FF7154760000000, float 0x4167FFF800000000)
  %v28 = fsub float %v27, 0x4167FFF800000000
  %v29 = fneg float %v13
  %v30 = fmul float %v28, 0x3FE62E4000000000
  %v31 = call float @llvm.fma.f32(float %v29, float %v13, float %v30)
  %v32 = call float @llvm.fma.f32(float %v28, float 0x3EB7F7D1C0000000, float %v31)
  %v33 = fmul float %v32, %v32
  %v34 = fmul float %v32, %v32
  %v35 = call float @llvm.fma.f32(float 0x3F8123B820000000, float %v32, float 0x3FA5558E60000000)
  %v36 = call float @llvm.fma.f32(float 0x3F56A36720000000, float %v34, float %v35)
  %v37 = call float @llvm.fma.f32(float 0x3FC5554900000000, float %v32, float 0x3FDFFFFFC0000000)
  %v38 = call float @llvm.fma.f32(float %v36, float %v34, float %v37)
  %v39 = call float @llvm.fma.f32(float %v33, float %v38, float %v32)
  %v40 = fadd float %v39, 0x3FF0000000000000
  %v41 = bitcast float %v40 to i32
  %v42 = bitcast float %v27 to i32
  %v43 = shl i32 %v42, 23
  %v44 = sub i32 %v41, %v43
  %v45 = bitcast i32 %v44 to float
  %v46 = fmul float %v45, %v26
  %v47 = fcmp olt float %v11, 0x0000000000000000
  %v48 = fsub float 0x4000000000000000, %v46
  %v49 = select i1 %v47, float %v48, float %v46
  %v50 = fmul float %v9, %v49
  %v51 = getelementptr inbounds float, ptr %p1, i64 %i5
  store float %v50, ptr %v51, align 4
  %v52 = add nuw nsw i64 %i5, 1
  %v53 = icmp slt i64 %v52, %n0
  br i1 %v53, label %body5, label %done5, !llvm.loop !0
done5:
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
  %v24 = sub nsw i64 %hi, %lo
  %v25 = mul nsw i64 %lo, %v10
  %v26 = getelementptr i8, ptr %v8, i64 %v25
  %v27 = mul nsw i64 %lo, %v19
  %v28 = getelementptr i8, ptr %v17, i64 %v27
  call void @body(i64 %v24, ptr %v26, ptr %v28, i64 %v10, i64 %v19, i64 %v21, i64 %v23)
  ret void
}
