; 1: row
define internal void @body(i64 %n1, ptr noalias %p0, ptr noalias %p1, ptr noalias %p2, i64 %s0_1, i64 %s1_1, i64 %s2_1, i64 %c0, i64 %c1, i64 %x1, ptr noalias %w9) nounwind noinline {
entry:
  %s1 = alloca float, i64 1
  %s2 = alloca float, i64 1
  %s6 = alloca float, i64 1
  %s7 = alloca float, i64 1
  %s38 = alloca float, i64 1
  %s42 = alloca float, i64 1
  store float 0xFFF0000000000000, ptr %s1
  store float 0x8000000000000000, ptr %s2
  %v3 = load i32, ptr %p0, align 4
  %v4 = trunc i64 %c1 to i32
  %v5 = bitcast i32 %v4 to float
  store float 0xFFF0000000000000, ptr %s6
  store float 0x8000000000000000, ptr %s7
  %v9 = icmp slt i64 0, %n1
  br i1 %v9, label %body8, label %done8
body8:
  %i8 = phi i64 [ 0, %entry ], [ %v34, %done12 ]
  store float 0xFFF0000000000000, ptr %s6
  store float 0x8000000000000000, ptr %s7
  %v10 = add nsw i64 %i8, 256
  %v11 = call i64 @llvm.smin.i64(i64 %v10, i64 %n1)
  %v13 = icmp slt i64 %i8, %v11
  br i1 %v13, label %body12, label %done12
body12:
  %i12 = phi i64 [ %i8, %body8 ], [ %v26, %body12 ]
  %v14 = add nsw i64 %x1, %i12
  %v15 = trunc i64 %v14 to i32
  %v16 = icmp eq i32 %v3, %v15
  %v17 = uitofp i1 %v16 to float
  %v18 = getelementptr inbounds float, ptr %p1, i64 %i12
  %v19 = load float, ptr %v18, align 4
  %v20 = fmul float %v5, %v17
  %v21 = fneg float %v20
  %v22 = load float, ptr %s6
  %v23 = call float @llvm.maximum.f32(float %v22, float %v19)
  store float %v23, ptr %s6
  %v24 = load float, ptr %s7
  %v25 = fadd reassoc float %v24, %v21
  store float %v25, ptr %s7
  %v26 = add nuw nsw i64 %i12, 1
  %v27 = icmp slt i64 %v26, %v11
  br i1 %v27, label %body12, label %done12, !llvm.loop !0
done12:
  %v28 = load float, ptr %s1
  %v29 = load float, ptr %s6
  %v30 = call float @llvm.maximum.f32(float %v28, float %v29)
  store float %v30, ptr %s1
  %v31 = load float, ptr %s2
  %v32 = load float, ptr %s7
  %v33 = fadd float %v31, %v32
  store float %v33, ptr %s2
  %v34 = add nuw nsw i64 %i8, 256
  %v35 = icmp slt i64 %v34, %n1
  br i1 %v35, label %body8, label %done8
done8:
  %v36 = load float, ptr %s1
  %v37 = load float, ptr %s2
  store float 0x8000000000000000, ptr %s38
  %v39 = trunc i64 %c0 to i32
  %v40 = bitcast i32 %v39 to float
  %v41 = call float @llvm.maximum.f32(float %v40, float %v36)
  store float 0x8000000000000000, ptr %s42
  %v44 = icmp slt i64 0, %n1
  br i1 %v44, label %body43, label %done43
body43:
  %i43 = phi i64 [ 0, %done8 ], [ %v85, %done47 ]
  store float 0x8000000000000000, ptr %s42
  %v45 = add nsw i64 %i43, 256
  %v46 = call i64 @llvm.smin.i64(i64 %v45, i64 %n1)
  %v48 = icmp slt i64 %i43, %v46
  br i1 %v48, label %body47, label %done47
body47:
  %i47 = phi i64 [ %i43, %body43 ], [ %v80, %body47 ]
  %v49 = getelementptr inbounds float, ptr %p1, i64 %i47
  %v50 = load float, ptr %v49, align 4
  %v51 = fsub float %v50, %v41
  %v52 = call float @llvm.maximum.f32(float %v51, float 0xC05A000000000000)
  %v53 = call float @llvm.minimum.f32(float %v52, float 0x40562E4300000000)
  %v54 = call float @llvm.fma.f32(float %v53, float 0x3FF7154760000000, float 0x4168000000000000)
  %v55 = fsub float %v54, 0x4168000000000000
  %v56 = bitcast float %v54 to i32
  %v57 = call float @llvm.fma.f32(float %v55, float 0xBFE62E4000000000, float %v53)
  %v58 = call float @llvm.fma.f32(float %v55, float 0xBEB7F7D1C0000000, float %v57)
  %v59 = fmul float %v58, %v58
  %v60 = fmul float %v58, %v58
  %v61 = call float @llvm.fma.f32(float 0x3F8123B820000000, float %v58, float 0x3FA5558E60000000)
  %v62 = call float @llvm.fma.f32(float 0x3F56A36720000000, float %v60, float %v61)
  %v63 = call float @llvm.fma.f32(float 0x3FC5554900000000, float %v58, float 0x3FDFFFFFC0000000)
  %v64 = call float @llvm.fma.f32(float %v62, float %v60, float %v63)
  %v65 = call float @llvm.fma.f32(float %v59, float %v64, float %v58)
  %v66 = fadd float %v65, 0x3FF0000000000000
  %v67 = fcmp olt float %v51, 0x0000000000000000
  %v68 = select i1 %v67, i32 1602224128, i32 1056964608
  %v69 = shl i32 %v56, 23
  %v70 = add i32 %v69, %v68
  %v71 = bitcast i32 %v70 to float
  %v72 = select i1 %v67, float 0x3BF0000000000000, float 0x4000000000000000
  %v73 = fmul float %v66, %v71
  %v74 = fmul float %v73, %v72
  %v75 = fcmp ogt float %v51, 0x40562E4300000000
  %v76 = select i1 %v75, float 0x7FF0000000000000, float %v74
  %v77 = getelementptr inbounds float, ptr %w9, i64 %i47
  store float %v76, ptr %v77, align 4
  %v78 = load float, ptr %s42
  %v79 = fadd reassoc float %v78, %v76
  store float %v79, ptr %s42
  %v80 = add nuw nsw i64 %i47, 1
  %v81 = icmp slt i64 %v80, %v46
  br i1 %v81, label %body47, label %done47, !llvm.loop !3
done47:
  %v82 = load float, ptr %s38
  %v83 = load float, ptr %s42
  %v84 = fadd float %v82, %v83
  store float %v84, ptr %s38
  %v85 = add nuw nsw i64 %i43, 256
  %v86 = icmp slt i64 %v85, %n1
  br i1 %v86, label %body43, label %done43
done43:
  %v87 = load float, ptr %s38
  %v88 = fdiv float %v37, %v87
  %v90 = icmp slt i64 0, %n1
  br i1 %v90, label %body89, label %done89
body89:
  %i89 = phi i64 [ 0, %done43 ], [ %v101, %body89 ]
  %v91 = add nsw i64 %x1, %i89
  %v92 = trunc i64 %v91 to i32
  %v93 = icmp eq i32 %v3, %v92
  %v94 = uitofp i1 %v93 to float
  %v95 = getelementptr inbounds float, ptr %w9, i64 %i89
  %v96 = load float, ptr %v95, align 4
  %v97 = fmul float %v5, %v94
  %v98 = fmul float %v88, %v96
  %v99 = fadd float %v97, %v98
  %v100 = getelementptr inbounds float, ptr %p2, i64 %i89
  store float %v99, ptr %v100, align 4
  %v101 = add nuw nsw i64 %i89, 1
  %v102 = icmp slt i64 %v101, %n1
  br i1 %v102, label %body89, label %done89, !llvm.loop !6
done89:
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
  %v39 = getelementptr inbounds i64, ptr %args, i64 15
  %v40 = load i64, ptr %v39, align 8
  %s41 = alloca float, i64 %v3, align 64
  %v43 = icmp slt i64 %lo, %hi
  br i1 %v43, label %body42, label %done42
body42:
  %i42 = phi i64 [ %lo, %entry ], [ %v50, %body42 ]
  %v44 = mul nsw i64 %i42, %v12
  %v45 = getelementptr i8, ptr %v10, i64 %v44
  %v46 = mul nsw i64 %i42, %v23
  %v47 = getelementptr i8, ptr %v21, i64 %v46
  %v48 = mul nsw i64 %i42, %v34
  %v49 = getelementptr i8, ptr %v32, i64 %v48
  call void @body(i64 %v3, ptr %v45, ptr %v47, ptr %v49, i64 %v14, i64 %v25, i64 %v36, i64 %v38, i64 %v40, i64 0, ptr %s41)
  %v50 = add nuw nsw i64 %i42, 1
  %v51 = icmp slt i64 %v50, %hi
  br i1 %v51, label %body42, label %done42
done42:
  ret void
}
