; 1: map
define internal void @body(i64 %n0, ptr noalias %p0, ptr noalias %p1, ptr noalias %p2, ptr noalias %p3, ptr noalias %p4, ptr noalias %p5, ptr noalias %p6, i64 %s0_0, i64 %s1_0, i64 %s2_0, i64 %s3_0, i64 %s4_0, i64 %s5_0, i64 %s6_0, i64 %c0, i64 %c1, i64 %c2, i64 %c3, i64 %c4) nounwind noinline {
entry:
  %v1 = trunc i64 %c0 to i32
  %v2 = bitcast i32 %v1 to float
  %v3 = trunc i64 %c1 to i32
  %v4 = bitcast i32 %v3 to float
  %v5 = trunc i64 %c2 to i32
  %v6 = bitcast i32 %v5 to float
  %v7 = trunc i64 %c3 to i32
  %v8 = bitcast i32 %v7 to float
  %v9 = trunc i64 %c4 to i32
  %v10 = bitcast i32 %v9 to float
  %v12 = icmp slt i64 0, %n0
  br i1 %v12, label %body11, label %done11
body11:
  %i11 = phi i64 [ 0, %entry ], [ %v36, %body11 ]
  %v13 = getelementptr inbounds float, ptr %p0, i64 %i11
  %v14 = load float, ptr %v13, align 4
  %v15 = fmul float %v2, %v14
  %v16 = getelementptr inbounds float, ptr %p1, i64 %i11
  %v17 = load float, ptr %v16, align 4
  %v18 = fmul float %v4, %v17
  %v19 = fadd float %v15, %v18
  %v20 = getelementptr inbounds float, ptr %p2, i64 %i11
  %v21 = load float, ptr %v20, align 4
  %v22 = fmul float %v6, %v21
  %v23 = fmul float %v8, %v17
  %v24 = fmul float %v23, %v17
  %v25 = fadd float %v22, %v24
  %v26 = fmul float %v8, %v19
  %v27 = call float @llvm.sqrt.f32(float %v25)
  %v28 = fadd float %v27, %v10
  %v29 = fdiv float %v26, %v28
  %v30 = getelementptr inbounds float, ptr %p3, i64 %i11
  %v31 = load float, ptr %v30, align 4
  %v32 = fsub float %v31, %v29
  %v33 = getelementptr inbounds float, ptr %p4, i64 %i11
  store float %v25, ptr %v33, align 4
  %v34 = getelementptr inbounds float, ptr %p5, i64 %i11
  store float %v19, ptr %v34, align 4
  %v35 = getelementptr inbounds float, ptr %p6, i64 %i11
  store float %v32, ptr %v35, align 4
  %v36 = add nuw nsw i64 %i11, 1
  %v37 = icmp slt i64 %v36, %n0
  br i1 %v37, label %body11, label %done11, !llvm.loop !0
done11:
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
  %v31 = getelementptr inbounds ptr, ptr %buffers, i64 %v30
  %v32 = load ptr, ptr %v31, align 8
  %v33 = getelementptr inbounds i64, ptr %args, i64 11
  %v34 = load i64, ptr %v33, align 8
  %v35 = getelementptr i8, ptr %v32, i64 %v34
  %v36 = getelementptr inbounds i64, ptr %args, i64 12
  %v37 = load i64, ptr %v36, align 8
  %v38 = getelementptr inbounds i64, ptr %args, i64 13
  %v39 = load i64, ptr %v38, align 8
  %v40 = getelementptr inbounds ptr, ptr %buffers, i64 %v39
  %v41 = load ptr, ptr %v40, align 8
  %v42 = getelementptr inbounds i64, ptr %args, i64 14
  %v43 = load i64, ptr %v42, align 8
  %v44 = getelementptr i8, ptr %v41, i64 %v43
  %v45 = getelementptr inbounds i64, ptr %args, i64 15
  %v46 = load i64, ptr %v45, align 8
  %v47 = getelementptr inbounds i64, ptr %args, i64 16
  %v48 = load i64, ptr %v47, align 8
  %v49 = getelementptr inbounds ptr, ptr %buffers, i64 %v48
  %v50 = load ptr, ptr %v49, align 8
  %v51 = getelementptr inbounds i64, ptr %args, i64 17
  %v52 = load i64, ptr %v51, align 8
  %v53 = getelementptr i8, ptr %v50, i64 %v52
  %v54 = getelementptr inbounds i64, ptr %args, i64 18
  %v55 = load i64, ptr %v54, align 8
  %v56 = getelementptr inbounds i64, ptr %args, i64 19
  %v57 = load i64, ptr %v56, align 8
  %v58 = getelementptr inbounds ptr, ptr %buffers, i64 %v57
  %v59 = load ptr, ptr %v58, align 8
  %v60 = getelementptr inbounds i64, ptr %args, i64 20
  %v61 = load i64, ptr %v60, align 8
  %v62 = getelementptr i8, ptr %v59, i64 %v61
  %v63 = getelementptr inbounds i64, ptr %args, i64 21
  %v64 = load i64, ptr %v63, align 8
  %v65 = getelementptr inbounds i64, ptr %args, i64 22
  %v66 = load i64, ptr %v65, align 8
  %v67 = getelementptr inbounds i64, ptr %args, i64 23
  %v68 = load i64, ptr %v67, align 8
  %v69 = getelementptr inbounds i64, ptr %args, i64 24
  %v70 = load i64, ptr %v69, align 8
  %v71 = getelementptr inbounds i64, ptr %args, i64 25
  %v72 = load i64, ptr %v71, align 8
  %v73 = getelementptr inbounds i64, ptr %args, i64 26
  %v74 = load i64, ptr %v73, align 8
  %v75 = sub nsw i64 %hi, %lo
  %v76 = mul nsw i64 %lo, %v10
  %v77 = getelementptr i8, ptr %v8, i64 %v76
  %v78 = mul nsw i64 %lo, %v19
  %v79 = getelementptr i8, ptr %v17, i64 %v78
  %v80 = mul nsw i64 %lo, %v28
  %v81 = getelementptr i8, ptr %v26, i64 %v80
  %v82 = mul nsw i64 %lo, %v37
  %v83 = getelementptr i8, ptr %v35, i64 %v82
  %v84 = mul nsw i64 %lo, %v46
  %v85 = getelementptr i8, ptr %v44, i64 %v84
  %v86 = mul nsw i64 %lo, %v55
  %v87 = getelementptr i8, ptr %v53, i64 %v86
  %v88 = mul nsw i64 %lo, %v64
  %v89 = getelementptr i8, ptr %v62, i64 %v88
  call void @body(i64 %v75, ptr %v77, ptr %v79, ptr %v81, ptr %v83, ptr %v85, ptr %v87, ptr %v89, i64 %v10, i64 %v19, i64 %v28, i64 %v37, i64 %v46, i64 %v55, i64 %v64, i64 %v66, i64 %v68, i64 %v70, i64 %v72, i64 %v74)
  ret void
}
