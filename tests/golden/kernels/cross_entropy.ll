; 1: row
define internal void @body(i64 %n1, ptr noalias %p0, ptr noalias %p1, ptr noalias %p2, i64 %s0_1, i64 %s1_1, i64 %s2_1, i64 %c0, i64 %x1) nounwind noinline {
entry:
  %s1 = alloca float, i64 1
  %s11 = alloca float, i64 1
  %s50 = alloca float, i64 1
  store float 0xFFF0000000000000, ptr %s1
  %v3 = icmp slt i64 0, %n1
  br i1 %v3, label %body2, label %done2
body2:
  %i2 = phi i64 [ 0, %entry ], [ %v8, %body2 ]
  %v4 = getelementptr inbounds float, ptr %p1, i64 %i2
  %v5 = load float, ptr %v4, align 4
  %v6 = load float, ptr %s1
  %v7 = call float @llvm.maximum.f32(float %v6, float %v5)
  store float %v7, ptr %s1
  %v8 = add nuw nsw i64 %i2, 1
  %v9 = icmp slt i64 %v8, %n1
  br i1 %v9, label %body2, label %done2, !llvm.loop !0
done2:
  %v10 = load float, ptr %s1
  store float 0x8000000000000000, ptr %s11
  %v12 = trunc i64 %c0 to i32
  %v13 = bitcast i32 %v12 to float
  %v14 = call float @llvm.maximum.f32(float %v13, float %v10)
  %v16 = icmp slt i64 0, %n1
  br i1 %v16, label %body15, label %done15
body15:
  %i15 = phi i64 [ 0, %done2 ], [ %v47, %body15 ]
  %v17 = getelementptr inbounds float, ptr %p1, i64 %i15
  %v18 = load float, ptr %v17, align 4
  %v19 = fsub float %v18, %v14
  %v20 = call float @llvm.maximum.f32(float %v19, float 0xC05A000000000000)
  %v21 = call float @llvm.minimum.f32(float %v20, float 0x40562E4300000000)
  %v22 = call float @llvm.fma.f32(float %v21, float 0x3FF7154760000000, float 0x4168000000000000)
  %v23 = fsub float %v22, 0x4168000000000000
  %v24 = bitcast float %v22 to i32
  %v25 = call float @llvm.fma.f32(float %v23, float 0xBFE62E4000000000, float %v21)
  %v26 = call float @llvm.fma.f32(float %v23, float 0xBEB7F7D1C0000000, float %v25)
  %v27 = fmul float %v26, %v26
  %v28 = fmul float %v26, %v26
  %v29 = call float @llvm.fma.f32(float 0x3F8123B820000000, float %v26, float 0x3FA5558E60000000)
  %v30 = call float @llvm.fma.f32(float 0x3F56A36720000000, float %v28, float %v29)
  %v31 = call float @llvm.fma.f32(float 0x3FC5554900000000, float %v26, float 0x3FDFFFFFC0000000)
  %v32 = call float @llvm.fma.f32(float %v30, float %v28, float %v31)
  %v33 = call float @llvm.fma.f32(float %v27, float %v32, float %v26)
  %v34 = fadd float %v33, 0x3FF0000000000000
  %v35 = fcmp olt float %v19, 0x0000000000000000
  %v36 = select i1 %v35, i32 1602224128, i32 1056964608
  %v37 = shl i32 %v24, 23
  %v38 = add i32 %v37, %v36
  %v39 = bitcast i32 %v38 to float
  %v40 = select i1 %v35, float 0x3BF0000000000000, float 0x4000000000000000
  %v41 = fmul float %v34, %v39
  %v42 = fmul float %v41, %v40
  %v43 = fcmp ogt float %v19, 0x40562E4300000000
  %v44 = select i1 %v43, float 0x7FF0000000000000, float %v42
  %v45 = load float, ptr %s11
  %v46 = fadd reassoc float %v45, %v44
  store float %v46, ptr %s11
  %v47 = add nuw nsw i64 %i15, 1
  %v48 = icmp slt i64 %v47, %n1
  br i1 %v48, label %body15, label %done15, !llvm.loop !3
done15:
  %v49 = load float, ptr %s11
  store float 0x8000000000000000, ptr %s50
  %v51 = load i32, ptr %p0, align 4
  %v52 = fcmp olt float %v49, 0x3810000000000000
  %v53 = fmul float %v49, 0x4160000000000000
  %v54 = select i1 %v52, float %v53, float %v49
  %v55 = select i1 %v52, float 0xC037000000000000, float 0x0000000000000000
  %v56 = bitcast float %v54 to i32
  %v57 = sub i32 %v56, 1059760811
  %v58 = and i32 %v57, -8388608
  %v59 = sub i32 %v56, %v58
  %v60 = bitcast i32 %v59 to float
  %v61 = sitofp i32 %v58 to float
  %v62 = call float @llvm.fma.f32(float %v61, float 0x3E80000000000000, float %v55)
  %v63 = fsub float %v60, 0x3FF0000000000000
  %v64 = fmul float %v63, %v63
  %v65 = fmul float %v63, %v63
  %v66 = call float @llvm.fma.f32(float 0x3FC2080000000000, float %v63, float 0xBFBF198B20000000)
  %v67 = call float @llvm.fma.f32(float 0xBFC0AE0000000000, float %v65, float %v66)
  %v68 = call float @llvm.fma.f32(float 0x3FC1E57400000000, float %v63, float 0xBFC55B36C0000000)
  %v69 = call float @llvm.fma.f32(float %v67, float %v65, float %v68)
  %v70 = call float @llvm.fma.f32(float 0x3FC99D8B20000000, float %v63, float 0xBFCFFFE020000000)
  %v71 = call float @llvm.fma.f32(float %v69, float %v65, float %v70)
  %v72 = call float @llvm.fma.f32(float 0x3FD5554FA0000000, float %v63, float 0xBFE0000000000000)
  %v73 = call float @llvm.fma.f32(float %v71, float %v65, float %v72)
  %v74 = call float @llvm.fma.f32(float %v64, float %v73, float %v63)
  %v75 = call float @llvm.fma.f32(float %v62, float 0x3FE62E4300000000, float %v74)
  %v76 = fcmp olt float %v49, 0x7FF0000000000000
  %v77 = select i1 %v76, float %v75, float %v49
  %v78 = fcmp oeq float %v49, 0x0000000000000000
  %v79 = select i1 %v78, float 0xFFF0000000000000, float %v77
  %v80 = fcmp olt float %v49, 0x0000000000000000
  %v81 = select i1 %v80, float 0x7FF8000000000000, float %v79
  %v83 = icmp slt i64 0, %n1
  br i1 %v83, label %body82, label %done82
body82:
  %i82 = phi i64 [ 0, %done15 ], [ %v95, %body82 ]
  %v84 = add nsw i64 %x1, %i82
  %v85 = trunc i64 %v84 to i32
  %v86 = icmp eq i32 %v51, %v85
  %v87 = uitofp i1 %v86 to float
  %v88 = getelementptr inbounds float, ptr %p1, i64 %i82
  %v89 = load float, ptr %v88, align 4
  %v90 = fsub float %v89, %v14
  %v91 = fsub float %v90, %v81
  %v92 = fmul float %v91, %v87
  %v93 = load float, ptr %s50
  %v94 = fadd reassoc float %v93, %v92
  store float %v94, ptr %s50
  %v95 = add nuw nsw i64 %i82, 1
  %v96 = icmp slt i64 %v95, %n1
  br i1 %v96, label %body82, label %done82, !llvm.loop !6
done82:
  %v97 = load float, ptr %s50
  store float %v97, ptr %p2, align 4
  ret void
}
!0 = distinct !{!0, !1, !2}
!1 = !{!"llvm.loop.vectorize.enable", i1 true}
!2 = !{!"llvm.loop.interleave.count", i32 4}
!3 = distinct !{!3, !4, !5}
!4 = !{!"llvm.loop.vectorize.enable", i1 true}
!5 = !{!"llvm.loop.interleave.count", i32 4}
!6 = distinct !{!6, !7, !8}
!7 = !{!"llvm.loop.vectorize.enable", i1 true}
!8 = !{!"llvm.loop.interleave.count", i32 4}
define void @kernel(i64 %lo, i64 %hi, ptr noalias %args, ptr noalias %buffers) nounwind {
entry:
  %v1 = load i64, ptr %args, align 8
  %v2 = getelementptr inbounds i64, ptr %args, i64 1
  %v3 = load i64, ptr %v2, align 8
  %v4 = getelementptr inbounds i64, ptr %args, i64 2
  %v5 = load i64, ptr %v4, align 8
  %v6 = getelementptr inbounds ptr, ptr %buffers, i64 %v5
  %v7 = load ptr, ptr %v6, align 8
  %v8 = getelementptr inbounds i64, ptr %args, i64 3
  %v9 = load i64, ptr %v8, align 8
  %v10 = getelementptr i8, ptr %v7, i64 %v9
  %v11 = getelementptr inbounds i64, ptr %args, i64 4
  %v12 = load i64, ptr %v11, align 8
  %v13 = getelementptr inbounds i64, ptr %args, i64 5
  %v14 = load i64, ptr %v13, align 8
  %v15 = getelementptr inbounds i64, ptr %args, i64 6
  %v16 = load i64, ptr %v15, align 8
  %v17 = getelementptr inbounds ptr, ptr %buffers, i64 %v16
  %v18 = load ptr, ptr %v17, align 8
  %v19 = getelementptr inbounds i64, ptr %args, i64 7
  %v20 = load i64, ptr %v19, align 8
  %v21 = getelementptr i8, ptr %v18, i64 %v20
  %v22 = getelementptr inbounds i64, ptr %args, i64 8
  %v23 = load i64, ptr %v22, align 8
  %v24 = getelementptr inbounds i64, ptr %args, i64 9
  %v25 = load i64, ptr %v24, align 8
  %v26 = getelementptr inbounds i64, ptr %args, i64 10
  %v27 = load i64, ptr %v26, align 8
  %v28 = getelementptr inbounds ptr, ptr %buffers, i64 %v27
  %v29 = load ptr, ptr %v28, align 8
  %v30 = getelementptr inbounds i64, ptr %args, i64 11
  %v31 = load i64, ptr %v30, align 8
  %v32 = getelementptr i8, ptr %v29, i64 %v31
  %v33 = getelementptr inbounds i64, ptr %args, i64 12
  %v34 = load i64, ptr %v33, align 8
  %v35 = getelementptr inbounds i64, ptr %args, i64 13
  %v36 = load i64, ptr %v35, align 8
  %v37 = getelementptr inbounds i64, ptr %args, i64 14
  %v38 = load i64, ptr %v37, align 8
  %v40 = icmp slt i64 %lo, %hi
  br i1 %v40, label %body39, label %done39
body39:
  %i39 = phi i64 [ %lo, %entry ], [ %v47, %body39 ]
  %v41 = mul nsw i64 %i39, %v12
  %v42 = getelementptr i8, ptr %v10, i64 %v41
  %v43 = mul nsw i64 %i39, %v23
  %v44 = getelementptr i8, ptr %v21, i64 %v43
  %v45 = mul nsw i64 %i39, %v34
  %v46 = getelementptr i8, ptr %v32, i64 %v45
  call void @body(i64 %v3, ptr %v42, ptr %v44, ptr %v46, i64 %v14, i64 %v25, i64 %v36, i64 %v38, i64 0)
  %v47 = add nuw nsw i64 %i39, 1
  %v48 = icmp slt i64 %v47, %hi
  br i1 %v48, label %body39, label %done39
done39:
  ret void
}

; 2: row
define internal void @body(i64 %n0, ptr noalias %p0, ptr noalias %p1, i64 %s0_0, i64 %s1_0, i64 %c0) nounwind noinline {
entry:
  %s1 = alloca float, i64 1
  store float 0x8000000000000000, ptr %s1
  %v3 = icmp slt i64 0, %n0
  br i1 %v3, label %body2, label %done2
body2:
  %i2 = phi i64 [ 0, %entry ], [ %v8, %body2 ]
  %v4 = getelementptr inbounds float, ptr %p0, i64 %i2
  %v5 = load float, ptr %v4, align 4
  %v6 = load float, ptr %s1
  %v7 = fadd reassoc float %v6, %v5
  store float %v7, ptr %s1
  %v8 = add nuw nsw i64 %i2, 1
  %v9 = icmp slt i64 %v8, %n0
  br i1 %v9, label %body2, label %done2, !llvm.loop !0
done2:
  %v10 = load float, ptr %s1
  %v11 = trunc i64 %c0 to i32
  %v12 = bitcast i32 %v11 to float
  %v13 = fdiv float %v10, %v12
  %v14 = fneg float %v13
  store float %v14, ptr %p1, align 4
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
  %v23 = icmp slt i64 %lo, %hi
  br i1 %v23, label %body22, label %done22
body22:
  %i22 = phi i64 [ %lo, %entry ], [ %v24, %body22 ]
  call void @body(i64 %v1, ptr %v8, ptr %v17, i64 %v10, i64 %v19, i64 %v21)
  %v24 = add nuw nsw i64 %i22, 1
  %v25 = icmp slt i64 %v24, %hi
  br i1 %v25, label %body22, label %done22
done22:
  ret void
}
