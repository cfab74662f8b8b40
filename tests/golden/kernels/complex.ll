; 1: map
define internal void @body(i64 %n0, ptr noalias %p0, ptr noalias %p1, ptr noalias %p2, i64 %s0_0, i64 %s1_0, i64 %s2_0, i64 %c0, i64 %c1) nounwind noinline {
entry:
  %v1 = trunc i64 %c0 to i32
  %v2 = bitcast i32 %v1 to float
  %v3 = trunc i64 %c1 to i32
  %v4 = bitcast i32 %v3 to float
  %v6 = icmp slt i64 0, %n0
  br i1 %v6, label %body5, label %done5
body5:
  %i5 = phi i64 [ 0, %entry ], [ %v62, %body5 ]
  %v7 = getelementptr inbounds { float, float }, ptr %p0, i64 %i5
  %v8 = load float, ptr %v7, align 4
  %v9 = getelementptr inbounds float, ptr %v7, i64 1
  %v10 = load float, ptr %v9, align 4
  %v11 = getelementptr inbounds { float, float }, ptr %p1, i64 %i5
  %v12 = load float, ptr %v11, align 4
  %v13 = getelementptr inbounds float, ptr %v11, i64 1
  %v14 = load float, ptr %v13, align 4
  %v15 = fmul float %v8, %v12
  %v16 = fmul float %v10, %v14
  %v17 = fsub float %v15, %v16
  %v18 = fmul float %v8, %v14
  %v19 = fmul float %v10, %v12
  %v20 = fadd float %v18, %v19
  %v21 = fadd float %v17, %v2
  %v22 = fadd float %v20, %v4
  %v23 = call float @llvm.fabs.f32(float %v21)
  %v24 = call float @llvm.fabs.f32(float %v22)
  %v25 = fcmp oeq float %v23, 0x7FF0000000000000
  %v26 = fcmp oeq float %v24, 0x7FF0000000000000
  %v27 = or i1 %v25, %v26
  %v28 = fcmp olt float %v23, %v24
  %v29 = select i1 %v28, float %v24, float %v23
  %v30 = select i1 %v28, float %v23, float %v24
  %v31 = fcmp oge float %v29, 0x43B0000000000000
  %v32 = fcmp olt float %v29, 0x3D70000000000000
  %v33 = select i1 %v32, float 0x4630000000000000, float 0x3FF0000000000000
  %v34 = select i1 %v31, float 0x39B0000000000000, float %v33
  %v35 = select i1 %v32, float 0x39B0000000000000, float 0x3FF0000000000000
  %v36 = select i1 %v31, float 0x4630000000000000, float %v35
  %v37 = fmul float %v29, %v34
  %v38 = fmul float %v30, %v34
  %v39 = call float @llvm.fma.f32(float %v37, float %v37, float 0x8000000000000000)
  %v40 = call float @llvm.fma.f32(float %v38, float %v38, float 0x8000000000000000)
  %v41 = fadd float %v39, %v40
  %v42 = fneg float %v39
  %v43 = call float @llvm.fma.f32(float %v37, float %v37, float %v42)
  %v44 = fneg float %v40
  %v45 = call float @llvm.fma.f32(float %v38, float %v38, float %v44)
  %v46 = fadd float %v43, %v45
  %v47 = fsub float %v41, %v39
  %v48 = fsub float %v40, %v47
  %v49 = fadd float %v46, %v48
  %v50 = call float @llvm.sqrt.f32(float %v41)
  %v51 = fneg float %v50
  %v52 = call float @llvm.fma.f32(float %v51, float %v50, float %v41)
  %v53 = fadd float %v52, %v49
  %v54 = fadd float %v50, %v50
  %v55 = fdiv float %v53, %v54
  %v56 = fadd float %v50, %v55
  %v57 = fmul float %v56, %v36
  %v58 = fcmp oeq float %v41, 0x0000000000000000
  %v59 = select i1 %v58, float 0x0000000000000000, float %v57
  %v60 = select i1 %v27, float 0x7FF0000000000000, float %v59
  %v61 = getelementptr inbounds float, ptr %p2, i64 %i5
  store float %v60, ptr %v61, align 4
  %v62 = add nuw nsw i64 %i5, 1
  %v63 = icmp slt i64 %v62, %n0
  br i1 %v63, label %body5, label %done5, !llvm.loop !0
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
  %v22 = getelementptr inbounds ptr, ptr %buffers, i64 %v21
  %v23 = load ptr, ptr %v22, align 8
  %v24 = getelementptr inbounds i64, ptr %args, i64 8
  %v25 = load i64, ptr %v24, align 8
  %v26 = getelementptr i8, ptr %v23, i64 %v25
  %v27 = getelementptr inbounds i64, ptr %args, i64 9
  %v28 = load i64, ptr %v27, align 8
  %v29 = getelementptr inbounds i64, ptr %args, i64 10
  %v30 = load i64, ptr %v29, align 8
  %v31 = getelementptr inbounds i64, ptr %args, i64 11
  %v32 = load i64, ptr %v31, align 8
  %v33 = sub nsw i64 %hi, %lo
  %v34 = mul nsw i64 %lo, %v10
  %v35 = getelementptr i8, ptr %v8, i64 %v34
  %v36 = mul nsw i64 %lo, %v19
  %v37 = getelementptr i8, ptr %v17, i64 %v36
  %v38 = mul nsw i64 %lo, %v28
  %v39 = getelementptr i8, ptr %v26, i64 %v38
  call void @body(i64 %v33, ptr %v35, ptr %v37, ptr %v39, i64 %v10, i64 %v19, i64 %v28, i64 %v30, i64 %v32)
  ret void
}
