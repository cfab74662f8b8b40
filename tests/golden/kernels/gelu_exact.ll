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
  %i5 = phi i64 [ 0, %entry ], [ %v56, %body5 ]
  %v7 = getelementptr inbounds float, ptr %p0, i64 %i5
  %v8 = load float, ptr %v7, align 4
  %v9 = fmul float %v2, %v8
  %v10 = fneg float %v8
  %v11 = fmul float %v10, %v4
  %v12 = call float @llvm.fabs.f32(float %v11)
  %v13 = call float @llvm.minimum.f32(float %v12, float 0x4024333340000000)
  %v14 = fmul float %v13, %v13
  %v15 = fneg float %v14
  %v16 = call float @llvm.fma.f32(float %v13, float %v13, float %v15)
  %v17 = fneg float %v14
  %v18 = call float @llvm.fma.f32(float %v17, float 0x3FF7154760000000, float 0x4168000000000000)
  %v19 = fsub float %v18, 0x4168000000000000
  %v20 = bitcast float %v18 to i32
  %v21 = call float @llvm.fma.f32(float %v19, float 0xBFE62E4000000000, float %v17)
  %v22 = call float @llvm.fma.f32(float %v19, float 0xBEB7F7D1C0000000, float %v21)
  %v23 = shl i32 %v20, 23
  %v24 = add i32 %v23, 1602224128
  %v25 = bitcast i32 %v24 to float
  %v26 = fmul float %v22, %v22
  %v27 = fmul float %v22, %v22
  %v28 = call float @llvm.fma.f32(float 0x3F8123B820000000, float %v22, float 0x3FA5558E60000000)
  %v29 = call float @llvm.fma.f32(float 0x3F56A36720000000, float %v27, float %v28)
  %v30 = call float @llvm.fma.f32(float 0x3FC5554900000000, float %v22, float 0x3FDFFFFFC0000000)
  %v31 = call float @llvm.fma.f32(float %v29, float %v27, float %v30)
  %v32 = call float @llvm.fma.f32(float %v26, float %v31, float %v22)
  %v33 = fadd float %v32, 0x3FF0000000000000
  %v34 = fmul float %v33, %v25
  %v35 = fmul float %v34, 0x3BF0000000000000
  %v36 = fneg float %v16
  %v37 = call float @llvm.fma.f32(float %v36, float %v35, float %v35)
  %v38 = fmul float %v13, %v13
  %v39 = call float @llvm.fma.f32(float 0x3FCD57CDA0000000, float %v13, float 0x3FE769B120000000)
  %v40 = call float @llvm.fma.f32(float 0x3FA0CB5F20000000, float %v38, float %v39)
  %v41 = call float @llvm.fma.f32(float 0x3FF3D0B600000000, float %v13, float 0x3FF0000000000000)
  %v42 = call float @llvm.fma.f32(float %v40, float %v38, float %v41)
  %v43 = fmul float %v37, %v42
  %v44 = fmul float %v13, %v13
  %v45 = call float @llvm.fma.f32(float 0x3FADC45880000000, float %v13, float 0x3FDA019840000000)
  %v46 = call float @llvm.fma.f32(float 0x3FF5351360000000, float %v13, float 0x400337F860000000)
  %v47 = call float @llvm.fma.f32(float %v45, float %v44, float %v46)
  %v48 = call float @llvm.fma.f32(float 0x4002EF4700000000, float %v13, float 0x3FF0000000000000)
  %v49 = call float @llvm.fma.f32(float %v47, float %v44, float %v48)
  %v50 = fdiv float %v43, %v49
  %v51 = fcmp olt float %v11, 0x0000000000000000
  %v52 = fsub float 0x4000000000000000, %v50
  %v53 = select i1 %v51, float %v52, float %v50
  %v54 = fmul float %v9, %v53
  %v55 = getelementptr inbounds float, ptr %p1, i64 %i5
  store float %v54, ptr %v55, align 4
  %v56 = add nuw nsw i64 %i5, 1
  %v57 = icmp slt i64 %v56, %n0
  br i1 %v57, label %body5, label %done5, !llvm.loop !0
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
