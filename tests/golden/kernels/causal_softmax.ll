; 1: row
define internal void @body(i64 %n1, ptr noalias %p0, ptr noalias %p1, i64 %s0_1, i64 %s1_1, i64 %c0, i64 %c1, i64 %x0, i64 %x1, ptr noalias %w10) nounwind noinline {
entry:
  %s1 = alloca float, i64 1
  %s19 = alloca float, i64 1
  %s23 = alloca float, i64 1
  store float 0xFFF0000000000000, ptr %s1
  %v2 = trunc i64 %x0 to i32
  %v3 = trunc i64 %c0 to i32
  %v4 = bitcast i32 %v3 to float
  %v6 = icmp slt i64 0, %n1
  br i1 %v6, label %body5, label %done5
body5:
  %i5 = phi i64 [ 0, %entry ], [ %v16, %body5 ]
  %v7 = trunc i64 %x1 to i32
  %v8 = trunc i64 %i5 to i32
  %v9 = add i32 %v7, %v8
  %v10 = icmp sle i32 %v9, %v2
  %v11 = getelementptr inbounds float, ptr %p0, i64 %i5
  %v12 = load float, ptr %v11, align 4
  %v13 = select i1 %v10, float %v12, float %v4
  %v14 = load float, ptr %s1
  %v15 = call nsz float @llvm.maximum.f32(float %v14, float %v13)
  store float %v15, ptr %s1
  %v16 = add nuw nsw i64 %i5, 1
  %v17 = icmp slt i64 %v16, %n1
  br i1 %v17, label %body5, label %done5, !llvm.loop !0
done5:
  %v18 = load float, ptr %s1
  store float 0x8000000000000000, ptr %s19
  %v20 = trunc i64 %c1 to i32
  %v21 = bitcast i32 %v20 to float
  %v22 = call float @llvm.maximum.f32(float %v21, float %v18)
  store float 0x8000000000000000, ptr %s23
  %v25 = icmp slt i64 0, %n1
  br i1 %v25, label %body24, label %done24
body24:
  %i24 = phi i64 [ 0, %done5 ], [ %v71, %done28 ]
  store float 0x8000000000000000, ptr %s23
  %v26 = add nsw i64 %i24, 256
  %v27 = call i64 @llvm.smin.i64(i64 %v26, i64 %n1)
  %v29 = icmp slt i64 %i24, %v27
  br i1 %v29, label %body28, label %done28
body28:
  %i28 = phi i64 [ %i24, %body24 ], [ %v66, %body28 ]
  %v30 = trunc i64 %x1 to i32
  %v31 = trunc i64 %i28 to i32
  %v32 = add i32 %v30, %v31
  %v33 = icmp sle i32 %v32, %v2
  %v34 = getelementptr inbounds float, ptr %p0, i64 %i28
  %v35 = load float, ptr %v34, align 4
  %v36 = select i1 %v33, float %v35, float %v4
  %v37 = fsub float %v36, %v22
  %v38 = call float @llvm.maximum.f32(float %v37, float 0xC05A000000000000)
  %v39 = call float @llvm.minimum.f32(float %v38, float 0x40562E4300000000)
  %v40 = call float @llvm.fma.f32(float %v39, float 0x3FF7154760000000, float 0x4168000000000000)
  %v41 = fsub float %v40, 0x4168000000000000
  %v42 = bitcast float %v40 to i32
  %v43 = call float @llvm.fma.f32(float %v41, float 0xBFE62E4000000000, float %v39)
  %v44 = call float @llvm.fma.f32(float %v41, float 0xBEB7F7D1C0000000, float %v43)
  %v45 = fmul float %v44, %v44
  %v46 = fmul float %v44, %v44
  %v47 = call float @llvm.fma.f32(float 0x3F8123B820000000, float %v44, float 0x3FA5558E60000000)
  %v48 = call float @llvm.fma.f32(float 0x3F56A36720000000, float %v46, float %v47)
  %v49 = call float @llvm.fma.f32(float 0x3FC5554900000000, float %v44, float 0x3FDFFFFFC0000000)
  %v50 = call float @llvm.fma.f32(float %v48, float %v46, float %v49)
  %v51 = call float @llvm.fma.f32(float %v45, float %v50, float %v44)
  %v52 = fadd float %v51, 0x3FF0000000000000
  %v53 = fcmp olt float %v37, 0x0000000000000000
  %v54 = select i1 %v53, i32 1602224128, i32 1056964608
  %v55 = shl i32 %v42, 23
  %v56 = add i32 %v55, %v54
  %v57 = bitcast i32 %v56 to float
  %v58 = select i1 %v53, float 0x3BF0000000000000, float 0x4000000000000000
  %v59 = fmul float %v52, %v57
  %v60 = fmul float %v59, %v58
  %v61 = fcmp ogt float %v37, 0x40562E4300000000
  %v62 = select i1 %v61, float 0x7FF0000000000000, float %v60
  %v63 = getelementptr inbounds float, ptr %w10, i64 %i28
  store float %v62, ptr %v63, align 4
  %v64 = load float, ptr %s23
  %v65 = fadd reassoc float %v64, %v62
  store float %v65, ptr %s23
  %v66 = add nuw nsw i64 %i28, 1
  %v67 = icmp slt i64 %v66, %v27
  br i1 %v67, label %body28, label %done28, !llvm.loop !3
done28:
  %v68 = load float, ptr %s19
  %v69 = load float, ptr %s23
  %v70 = fadd float %v68, %v69
  store float %v70, ptr %s19
  %v71 = add nuw nsw i64 %i24, 256
  %v72 = icmp slt i64 %v71, %n1
  br i1 %v72, label %body24, label %done24
done24:
  %v73 = load float, ptr %s19
  %v75 = icmp slt i64 0, %n1
  br i1 %v75, label %body74, label %done74
body74:
  %i74 = phi i64 [ 0, %done24 ], [ %v88, %body74 ]
  %v76 = getelementptr inbounds float, ptr %w10, i64 %i74
  %v77 = load float, ptr %v76, align 4
  %v78 = call float @llvm.fabs.f32(float %v73)
  %v79 = fcmp olt float %v78, 0x3810000000000000
  %v80 = select i1 %v79, float 0x43F0000000000000, float 0x3FF0000000000000
  %v81 = fcmp ogt float %v78, 0x47D0000000000000
  %v82 = select i1 %v81, float 0x3BF0000000000000, float %v80
  %v83 = fmul float %v77, %v82
  %v84 = fmul float %v73, %v82
  %v85 = fdiv float 0x3FF0000000000000, %v84
  %v86 = fmul float %v83, %v85
  %v87 = getelementptr inbounds float, ptr %p1, i64 %i74
  store float %v86, ptr %v87, align 4
  %v88 = add nuw nsw i64 %i74, 1
  %v89 = icmp slt i64 %v88, %n1
  br i1 %v89, label %body74, label %done74, !llvm.loop !6
done74:
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
  %v28 = getelementptr inbounds i64, ptr %args, i64 11
  %v29 = load i64, ptr %v28, align 8
  %s30 = alloca float, i64 %v3, align 64
  %v32 = icmp slt i64 %lo, %hi
  br i1 %v32, label %body31, label %done31
body31:
  %i31 = phi i64 [ %lo, %entry ], [ %v37, %body31 ]
  %v33 = mul nsw i64 %i31, %v12
  %v34 = getelementptr i8, ptr %v10, i64 %v33
  %v35 = mul nsw i64 %i31, %v23
  %v36 = getelementptr i8, ptr %v21, i64 %v35
  call void @body(i64 %v3, ptr %v34, ptr %v36, i64 %v14, i64 %v25, i64 %v27, i64 %v29, i64 %i31, i64 0, ptr %s30)
  %v37 = add nuw nsw i64 %i31, 1
  %v38 = icmp slt i64 %v37, %hi
  br i1 %v38, label %body31, label %done31
done31:
  ret void
}
